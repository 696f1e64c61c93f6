/* Node: a connection to the daemon. */
#include "core/core.h"
#include "core/fields.h"

struct node {
	PyObject object;
	struct tierd_node *node;
};

static PyObject *node_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "socket_path", "reconnect_ms", NULL };
	struct tierd_connect_options options = TIERD_CONNECT_OPTIONS_INIT;
	struct tierd_node *handle;
	struct node *node;
	int r;

	options.is_interrupted = core_is_interrupted;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|zi", names, &options.socket_path,
					 &options.reconnect_ms))
		return NULL;
	CORE_BLOCKING(r = tierd_connect_with(&options, &handle));
	if (r < 0)
		return core_raise(PyType_GetModuleState(type), r);
	node = PyObject_New(struct node, type);
	if (!node) {
		tierd_disconnect(handle);
		return NULL;
	}
	node->node = handle;
	return (PyObject *)node;
}

/* Jobs keep the node alive, so none has a connection that is gone. */
static void node_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	CORE_BLOCKING(tierd_disconnect(((struct node *)self)->node));
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *node_set_timeout(PyObject *self, PyObject *argument)
{
	int timeout_ms, r;

	if (!PyArg_Parse(argument, "i", &timeout_ms))
		return NULL;
	CORE_BLOCKING(r = tierd_set_timeout(((struct node *)self)->node, timeout_ms));
	return core_none(self, r);
}

/* ---- Opening a job ---- */

static PyObject *node_open_job(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "options", "groups", NULL };
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct core_state *state = core_state_of(self);
	PyObject *dict, *sequence = NULL, *object;
	struct tierd_group *groups = NULL;
	struct tierd_job *job;
	int r;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O", names, &dict, &sequence) ||
	    fields_take(job_option_fields, dict, &options) < 0)
		return NULL;
	if (sequence && !(groups = groups_take(sequence, &options.group_count)))
		return NULL;
	options.groups = groups;
	CORE_BLOCKING(r = tierd_job_open(((struct node *)self)->node, &options, &job));
	PyMem_Free(groups);
	if (r < 0)
		return core_raise(state, r);
	object = job_object(state, self, job, options.gpu);
	if (!object)
		tierd_job_detach(job);
	return object;
}

static PyObject *node_open_reader(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "name", "owner", "snapshot", NULL };
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct core_state *state = core_state_of(self);
	long long owner = options.owner;
	struct tierd_reader *reader;
	PyObject *object;
	int r;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s|Lz", names, &options.name, &owner,
					 &options.snapshot))
		return NULL;
	options.owner = owner;
	CORE_BLOCKING(r = tierd_reader_open(((struct node *)self)->node, &options, &reader));
	if (r < 0)
		return core_raise(state, r);
	object = reader_object(state, self, reader);
	if (!object)
		tierd_reader_close(reader);
	return object;
}

static PyMethodDef node_methods[] = {
	{ "set_timeout", node_set_timeout, METH_O,
	  "How long blocking calls wait, in milliseconds; negative: without limit." },
	{ "open_job", (PyCFunction)(void (*)(void))node_open_job, METH_VARARGS | METH_KEYWORDS,
	  "open_job(options, groups=()): joins a job; the dicts have the fields of struct tierd_job_options "
	  "and struct tierd_group." },
	{ "open_reader", (PyCFunction)(void (*)(void))node_open_reader, METH_VARARGS | METH_KEYWORDS,
	  "open_reader(name, owner=-1, snapshot=None): looks at a job without a rank of it." },
	{ 0 },
};

static PyType_Slot node_slots[] = {
	{ Py_tp_doc, "Node(socket_path=None, reconnect_ms=-1): a connection to the daemon, as "
		     "tierd_connect_with(3) makes it." },
	{ Py_tp_new, node_new },
	{ Py_tp_dealloc, node_dealloc },
	{ Py_tp_methods, node_methods },
	{ 0, NULL },
};

PyType_Spec node_spec = {
	.name = "tierd._core.Node",
	.basicsize = sizeof(struct node),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = node_slots,
};
