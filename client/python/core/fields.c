#include <limits.h>
#include <string.h>

#include "client/tierd.h"
#include "core/fields.h"

/* ---- From a dict ---- */

static int take_unsigned(const struct field *field, PyObject *value, uint64_t greatest, uint64_t *ret_number)
{
	unsigned long long number = PyLong_AsUnsignedLongLong(value);

	if (PyErr_Occurred())
		return -1;
	if (number > greatest) {
		PyErr_SetNone(PyExc_OverflowError);
		return -1;
	}
	*ret_number = number;
	return 0;
}

/* A tuple of sizes; their number goes into the field before, "dimensions". */
static int take_shape(const struct field *field, PyObject *value, void *structure)
{
	struct tierd_tensor *tensor = structure;
	Py_ssize_t count = PyTuple_Check(value) ? PyTuple_Size(value) : -1;

	if (count < 0 || count > TIERD_MAX_DIMENSIONS) {
		PyErr_Format(PyExc_ValueError, "%s: a tuple of at most %d sizes is wanted, not %R",
			     field->key, TIERD_MAX_DIMENSIONS, value);
		return -1;
	}
	tensor->dimensions = count;
	for (Py_ssize_t i = 0; i < count; i++)
		if (take_unsigned(field, PyTuple_GetItem(value, i), UINT64_MAX, &tensor->shape[i]) < 0)
			return -1;
	return 0;
}

/* Python's own message of a wrong type names neither the field nor the value. */
static void name_type(const struct field *field, PyObject *value)
{
	static const char *const wanted[] = {
		[FIELD_BOOL] = "True or False",	    [FIELD_U32] = "a whole number",
		[FIELD_U64] = "a whole number",	    [FIELD_I32] = "a whole number",
		[FIELD_I64] = "a whole number",	    [FIELD_FLOAT] = "a number",
		[FIELD_DOUBLE] = "a number",	    [FIELD_STRING] = "a text",
		[FIELD_SHAPE] = "a tuple of sizes",
	};

	if (PyErr_ExceptionMatches(PyExc_TypeError))
		PyErr_Format(PyExc_TypeError, "%s is %R: %s is wanted", field->key, value,
			     wanted[field->kind]);
	else if (PyErr_ExceptionMatches(PyExc_OverflowError))
		PyErr_Format(PyExc_OverflowError, "%s is %R, which is out of its range", field->key, value);
}

static int take(const struct field *field, PyObject *value, void *structure)
{
	void *place = (char *)structure + field->offset;
	uint64_t number;
	long signed_number;
	int truth;

	switch (field->kind) {
	case FIELD_BOOL:
		truth = PyLong_Check(value) ? PyObject_IsTrue(value) : -1;
		if (truth >= 0)
			*(bool *)place = truth;
		else
			PyErr_SetNone(PyExc_TypeError);
		break;
	case FIELD_U32:
		if (take_unsigned(field, value, UINT32_MAX, &number) == 0)
			*(uint32_t *)place = number;
		break;
	case FIELD_U64:
		if (take_unsigned(field, value, UINT64_MAX, &number) == 0)
			*(uint64_t *)place = number;
		break;
	case FIELD_I32:
		signed_number = PyLong_AsLong(value);
		if (!PyErr_Occurred() && signed_number != (int32_t)signed_number)
			PyErr_SetNone(PyExc_OverflowError);
		*(int32_t *)place = signed_number;
		break;
	case FIELD_I64:
		*(int64_t *)place = PyLong_AsLongLong(value);
		break;
	case FIELD_FLOAT:
		*(float *)place = PyFloat_AsDouble(value);
		break;
	case FIELD_DOUBLE:
		*(double *)place = PyFloat_AsDouble(value);
		break;
	case FIELD_STRING:
		*(const char **)place = value == Py_None ? NULL : PyUnicode_AsUTF8AndSize(value, NULL);
		break;
	case FIELD_SHAPE:
		take_shape(field, value, structure);
		break;
	}
	if (!PyErr_Occurred())
		return 0;
	name_type(field, value);
	return -1;
}

static const struct field *find(const struct field *table, const char *key)
{
	for (; table->key; table++)
		if (strcmp(table->key, key) == 0)
			return table;
	return NULL;
}

int fields_take(const struct field *table, PyObject *dict, void *structure)
{
	PyObject *key, *value;
	Py_ssize_t position = 0;

	if (!PyDict_Check(dict)) {
		PyErr_Format(PyExc_TypeError, "a dict is wanted, not %R", dict);
		return -1;
	}
	while (PyDict_Next(dict, &position, &key, &value)) {
		const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
		const struct field *field = name ? find(table, name) : NULL;

		if (!name)
			return -1;
		if (!field) {
			PyErr_Format(PyExc_TypeError, "there is no option '%s'", name);
			return -1;
		}
		if (take(field, value, structure) < 0)
			return -1;
	}
	return 0;
}

/* ---- Into a dict ---- */

static PyObject *give(const struct field *field, const void *structure)
{
	const void *place = (const char *)structure + field->offset;
	PyObject *shape;

	switch (field->kind) {
	case FIELD_BOOL:
		return PyBool_FromLong(*(const bool *)place);
	case FIELD_U32:
		return PyLong_FromUnsignedLong(*(const uint32_t *)place);
	case FIELD_U64:
		return PyLong_FromUnsignedLongLong(*(const uint64_t *)place);
	case FIELD_I32:
		return PyLong_FromLong(*(const int32_t *)place);
	case FIELD_I64:
		return PyLong_FromLongLong(*(const int64_t *)place);
	case FIELD_FLOAT:
		return PyFloat_FromDouble(*(const float *)place);
	case FIELD_DOUBLE:
		return PyFloat_FromDouble(*(const double *)place);
	case FIELD_STRING:
		return Py_BuildValue("z", *(const char *const *)place);
	case FIELD_SHAPE:
		break;
	}
	shape = PyTuple_New(((const struct tierd_tensor *)structure)->dimensions);
	for (Py_ssize_t i = 0; shape && i < PyTuple_Size(shape); i++)
		PyTuple_SetItem(
			shape, i,
			PyLong_FromUnsignedLongLong(((const struct tierd_tensor *)structure)->shape[i]));
	return shape;
}

PyObject *fields_give(const struct field *table, const void *structure)
{
	PyObject *dict = PyDict_New();

	for (; dict && table->key; table++) {
		PyObject *value = give(table, structure);

		if (!value || PyDict_SetItemString(dict, table->key, value) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(value);
	}
	return dict;
}

PyObject *fields_names(const struct field *table)
{
	PyObject *names = PyList_New(0);

	for (; names && table->key; table++) {
		PyObject *name = PyUnicode_FromString(table->key);

		if (!name || PyList_Append(names, name) < 0)
			Py_CLEAR(names);
		Py_XDECREF(name);
	}
	return names;
}

/* ---- Groups ---- */

struct tierd_group *groups_take(PyObject *sequence, uint32_t *ret_count)
{
	Py_ssize_t count = PySequence_Size(sequence);
	struct tierd_group *groups = count < 0 ? NULL : PyMem_Calloc(count + 1, sizeof(*groups));

	for (Py_ssize_t i = 0; groups && i < count; i++) {
		PyObject *dict = PySequence_GetItem(sequence, i);

		groups[i] = (struct tierd_group)TIERD_GROUP_INIT;
		if (!dict || fields_take(group_fields, dict, &groups[i]) < 0) {
			PyMem_Free(groups);
			groups = NULL;
		}
		Py_XDECREF(dict);
	}
	if (!groups && !PyErr_Occurred())
		PyErr_NoMemory();
	if (groups)
		*ret_count = count;
	return groups;
}

/* ---- The tables ---- */

#define OPTION(name, kind) FIELD(tierd_job_options, name, kind)
const struct field job_option_fields[] = {
	OPTION(name, FIELD_STRING),
	OPTION(rank, FIELD_U32),
	OPTION(world_size, FIELD_U32),
	OPTION(stage, FIELD_U32),
	OPTION(mode, FIELD_U32),
	OPTION(optimizer, FIELD_U32),
	OPTION(clip_norm, FIELD_FLOAT),
	OPTION(nonfinite, FIELD_U32),
	OPTION(parameter_placement, FIELD_U32),
	OPTION(optimizer_placement, FIELD_U32),
	OPTION(host_budget, FIELD_U64),
	OPTION(gradient_buffers, FIELD_U32),
	OPTION(gradient_bytes, FIELD_U64),
	OPTION(strict, FIELD_BOOL),
	OPTION(takeover, FIELD_BOOL),
	OPTION(seed, FIELD_U64),
	OPTION(loss_scale, FIELD_FLOAT),
	OPTION(loss_scale_interval, FIELD_U32),
	OPTION(loss_scale_growth, FIELD_FLOAT),
	OPTION(loss_scale_backoff, FIELD_FLOAT),
	OPTION(loss_scale_minimum, FIELD_FLOAT),
	OPTION(io_weight, FIELD_U32),
	OPTION(nvme_budget, FIELD_U64),
	OPTION(owner, FIELD_I64),
	OPTION(sharing, FIELD_U32),
	OPTION(share_group, FIELD_U32),
	OPTION(gradient_placement, FIELD_U32),
	OPTION(durability, FIELD_U32),
	OPTION(blob_bytes, FIELD_U64),
	OPTION(source, FIELD_STRING),
	OPTION(source_owner, FIELD_I64),
	OPTION(partial, FIELD_BOOL),
	OPTION(snapshots, FIELD_U32),
	OPTION(with_optimizer, FIELD_BOOL),
	OPTION(snapshot_every, FIELD_U64),
	OPTION(snapshot_keep, FIELD_U32),
	OPTION(pushed_once, FIELD_BOOL),
	OPTION(drafted, FIELD_BOOL),
	OPTION(gpu, FIELD_I32),
	OPTION(gpu_budget, FIELD_U64),
	OPTION(gpu_gradients, FIELD_BOOL),
	OPTION(gpu_update, FIELD_FLOAT),
	{ 0 },
};

const struct field group_fields[] = {
	FIELD(tierd_group, learning_rate, FIELD_FLOAT), FIELD(tierd_group, beta1, FIELD_FLOAT),
	FIELD(tierd_group, beta2, FIELD_FLOAT),		FIELD(tierd_group, epsilon, FIELD_FLOAT),
	FIELD(tierd_group, weight_decay, FIELD_FLOAT),	FIELD(tierd_group, momentum, FIELD_FLOAT),
	FIELD(tierd_group, dampening, FIELD_FLOAT),	FIELD(tierd_group, nesterov, FIELD_BOOL),
	FIELD(tierd_group, moments, FIELD_U32),		{ 0 },
};

const struct field tensor_fields[] = {
	FIELD(tierd_tensor, name, FIELD_STRING),
	FIELD(tierd_tensor, alias, FIELD_STRING),
	FIELD(tierd_tensor, format, FIELD_U32),
	FIELD(tierd_tensor, shape, FIELD_SHAPE),
	FIELD(tierd_tensor, group, FIELD_U32),
	FIELD(tierd_tensor, is_frozen, FIELD_BOOL),
	FIELD(tierd_tensor, initializer, FIELD_U32),
	FIELD(tierd_tensor, a, FIELD_DOUBLE),
	FIELD(tierd_tensor, b, FIELD_DOUBLE),
	FIELD(tierd_tensor, slice_of, FIELD_STRING),
	FIELD(tierd_tensor, slice_row, FIELD_U64),
	FIELD(tierd_tensor, slice_rows, FIELD_U64),
	FIELD(tierd_tensor, dtype, FIELD_STRING),
	FIELD(tierd_tensor, gradient_format, FIELD_U32),
	{ 0 },
};

const struct field rates_fields[] = {
	FIELD(tierd_rates, learning_rate, FIELD_FLOAT), FIELD(tierd_rates, gradient_scale, FIELD_FLOAT),
	FIELD(tierd_rates, loss_scale, FIELD_FLOAT),	FIELD(tierd_rates, clip_norm, FIELD_FLOAT),
	FIELD(tierd_rates, drop, FIELD_BOOL),		{ 0 },
};

const struct field job_state_fields[] = {
	FIELD(tierd_job_state, status, FIELD_U32),    FIELD(tierd_job_state, epoch, FIELD_U32),
	FIELD(tierd_job_state, step, FIELD_U64),      FIELD(tierd_job_state, loss_scale, FIELD_FLOAT),
	FIELD(tierd_job_state, gpu_bytes, FIELD_U64), { 0 },
};

const struct field step_result_fields[] = {
	FIELD(tierd_step_result, step, FIELD_U64),
	FIELD(tierd_step_result, gradient_norm, FIELD_DOUBLE),
	FIELD(tierd_step_result, is_skipped, FIELD_BOOL),
	FIELD(tierd_step_result, loss_scale, FIELD_FLOAT),
	FIELD(tierd_step_result, next_loss_scale, FIELD_FLOAT),
	{ 0 },
};

const struct field statistics_fields[] = {
	FIELD(tierd_statistics, gathers, FIELD_U64),
	FIELD(tierd_statistics, gather_misses, FIELD_U64),
	FIELD(tierd_statistics, gather_wait_ns, FIELD_U64),
	FIELD(tierd_statistics, pushes, FIELD_U64),
	FIELD(tierd_statistics, gradient_wait_ns, FIELD_U64),
	FIELD(tierd_statistics, step_wait_ns, FIELD_U64),
	FIELD(tierd_statistics, communicated_elements, FIELD_U64),
	FIELD(tierd_statistics, logical_parameter_bytes, FIELD_U64),
	FIELD(tierd_statistics, logical_gradient_bytes, FIELD_U64),
	FIELD(tierd_statistics, logical_optimizer_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_parameters, FIELD_U64),
	FIELD(tierd_statistics, job_host_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_host_budget, FIELD_U64),
	FIELD(tierd_statistics, job_nvme_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_gather_read_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_update_read_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_update_written_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_initialize_written_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_steps, FIELD_U64),
	FIELD(tierd_statistics, job_step_ns, FIELD_U64),
	FIELD(tierd_statistics, job_gradient_read_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_gradient_written_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_gpu_parameter_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_gpu_gradient_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_gpu_update_bytes, FIELD_U64),
	FIELD(tierd_statistics, job_gpu_state_bytes, FIELD_U64),
	{ 0 },
};
