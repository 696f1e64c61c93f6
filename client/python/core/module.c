#include "core/fault.h"
#include "core/fields.h"

static PyObject *core_version(PyObject *self, PyObject *unused)
{
	return PyUnicode_FromString(tierd_version());
}

static PyMethodDef core_methods[] = {
	{ "version", core_version, METH_NOARGS, "The version of libtierd." },
	{ "catch_writes", fault_catch, METH_O,
	  "catch_writes(handler): a write to a job's gathered memory calls the handler, as signal.signal() "
	  "does for "
	  "SIGSEGV, and ends the process no more. From the main thread, once." },
	{ "written_address", fault_address, METH_NOARGS, "The address of the last such write." },
	{ 0 },
};

/* ---- Types ---- */

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **place)
{
	*place = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
	return *place ? PyModule_AddType(module, *place) : -1;
}

/* An OSError, so it has an errno. */
static int add_errors(PyObject *module, struct core_state *state)
{
	state->error = PyErr_NewExceptionWithDoc(
		"tierd.Error",
		"A call of tierd failed: errno, and a sentence that names the thing, "
		"the cause and the remedy.",
		PyExc_OSError, NULL);
	state->stale_error =
		state->error ? PyErr_NewExceptionWithDoc("tierd.StaleError",
							 "A rank was lost, or the daemon was restarted: the "
							 "job goes on from an earlier step, once it is "
							 "made ready again.",
							 state->error, NULL)
			     : NULL;
	if (!state->stale_error)
		return -1;
	return PyModule_AddObjectRef(module, "Error", state->error) < 0 ||
			       PyModule_AddObjectRef(module, "StaleError", state->stale_error) < 0
		       ? -1
		       : 0;
}

/* ---- Constants ---- */

#define CONSTANT(name)                                                                                       \
	{                                                                                                    \
#name, TIERD_##name                                                                          \
	}
static const struct {
	const char *name;
	unsigned value;
} constants[] = {
	CONSTANT(EITHER),
	CONSTANT(CREATE),
	CONSTANT(RESUME),
	CONSTANT(REPLACE),
	CONSTANT(ADAMW),
	CONSTANT(ADAM),
	CONSTANT(SGD),
	CONSTANT(LION),
	CONSTANT(NONE),
	CONSTANT(PLACE_DEFAULT),
	CONSTANT(PLACE_HOST),
	CONSTANT(PLACE_NVME),
	CONSTANT(PLACE_AUTO),
	CONSTANT(MOMENTS_FP32),
	CONSTANT(MOMENTS_BF16),
	CONSTANT(MOMENTS_INT8),
	CONSTANT(NONFINITE_SKIP),
	CONSTANT(NONFINITE_REPORT),
	CONSTANT(PRIVATE),
	CONSTANT(SHARE_READ),
	CONSTANT(SHARE_TRAIN),
	CONSTANT(DURABILITY_DEFAULT),
	CONSTANT(DURABILITY_STEP),
	CONSTANT(DURABILITY_NONE),
	CONSTANT(NO_SNAPSHOTS),
	CONSTANT(NEW),
	CONSTANT(RESUMED),
	CONSTANT(FP32),
	CONSTANT(BF16),
	CONSTANT(FP16),
	CONSTANT(BYTES),
	CONSTANT(INITIALIZE_NONE),
	CONSTANT(INITIALIZE_ZEROS),
	CONSTANT(INITIALIZE_ONES),
	CONSTANT(INITIALIZE_NORMAL),
	CONSTANT(INITIALIZE_UNIFORM),
	CONSTANT(DONE),
	CONSTANT(DURABLE),
	CONSTANT(REDUCED),
	CONSTANT(MAX_BLOB_BYTES),
	CONSTANT(MAX_GROUPS),
	CONSTANT(MAX_TENSORS),
	CONSTANT(MAX_NAME),
	CONSTANT(MAX_DIMENSIONS),
};

static int add_constants(PyObject *module)
{
	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		PyObject *value = PyLong_FromUnsignedLong(constants[i].value);
		int r = value ? PyModule_AddObjectRef(module, constants[i].name, value) : -1;

		Py_XDECREF(value);
		if (r < 0)
			return -1;
	}
	return 0;
}

/* The names of the options that Node.open_job() takes. */
static int add_option_names(PyObject *module)
{
	PyObject *names = fields_names(job_option_fields);
	int r = names ? PyModule_AddObjectRef(module, "JOB_OPTIONS", names) : -1;

	Py_XDECREF(names);
	return r;
}

static int core_execute(PyObject *module)
{
	struct core_state *state = PyModule_GetState(module);

	core_find_lock();
	return add_errors(module, state) < 0 || add_type(module, &node_spec, &state->node) < 0 ||
			       add_type(module, &job_spec, &state->job) < 0 ||
			       add_type(module, &reader_spec, &state->reader) < 0 ||
			       add_type(module, &ticket_spec, &state->ticket) < 0 ||
			       add_type(module, &lease_spec, &state->lease) < 0 ||
			       add_type(module, &view_spec, &state->view) < 0 ||
			       add_type(module, &memory_spec, &state->memory) < 0 ||
			       add_constants(module) < 0 || add_option_names(module) < 0
		       ? -1
		       : 0;
}

static PyModuleDef_Slot core_slots[] = {
	{ Py_mod_exec, core_execute },
	{ 0, NULL },
};

static struct PyModuleDef core_module = {
	.m_base = PyModuleDef_HEAD_INIT,
	.m_name = "tierd._core",
	.m_doc = "libtierd for Python; tierd and tierd.torch are made of it.",
	.m_size = sizeof(struct core_state),
	.m_methods = core_methods,
	.m_slots = core_slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&core_module);
}
