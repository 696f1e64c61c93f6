/* Tables that say which key of a dict is which field of a structure of tierd.h. */
#ifndef TIERD_CORE_FIELDS_H
#define TIERD_CORE_FIELDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

enum field_kind {
	FIELD_BOOL,
	FIELD_U32,
	FIELD_U64,
	FIELD_I32,
	FIELD_I64,
	FIELD_FLOAT,
	FIELD_DOUBLE,
	FIELD_STRING,
	FIELD_SHAPE
};

struct field {
	const char *key; /* the last of a table has none */
	size_t offset;
	enum field_kind kind;
};
#define FIELD(structure, name, kind)                                                                         \
	{                                                                                                    \
#name, offsetof(struct structure, name), kind                                                \
	}

/* Fills the structure with what the dict has. Strings are borrowed from the dict. -1 with an exception set: a
 * key that is not in the table, or a value that does not fit its field. */
int fields_take(const struct field *table, PyObject *dict, void *structure);

/* A dict of all that the table has; NULL with an exception set. */
PyObject *fields_give(const struct field *table, const void *structure);

/* A list of the keys that the table has; NULL with an exception set. */
PyObject *fields_names(const struct field *table);

struct tierd_group;
/* The groups that a sequence of dicts describes, for PyMem_Free(). NULL with an exception set. */
struct tierd_group *groups_take(PyObject *sequence, uint32_t *ret_count);

extern const struct field job_option_fields[], group_fields[], tensor_fields[], rates_fields[],
	job_state_fields[], step_result_fields[], statistics_fields[];

#endif
