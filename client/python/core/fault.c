#include "core/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

/* More than a process has jobs and lost connections; of what comes after them writes end the process. */
#define RANGES 64

/* Changed with the interpreter's lock, read by the handler at any time: a range of 0 bytes is none. */
static struct range {
	const void *owner;
	_Atomic uintptr_t start;
	_Atomic size_t bytes;
} ranges[RANGES];

static struct sigaction previous;
static bool is_installed;
static _Atomic uintptr_t last_address;

/* ---- What is watched ---- */

void fault_watch(const void *owner, const void *memory, size_t bytes)
{
	struct range *free_range = NULL;

	for (int i = 0; i < RANGES; i++) {
		if (ranges[i].bytes == 0)
			free_range = &ranges[i];
		else if (ranges[i].owner == owner && ranges[i].start == (uintptr_t)memory)
			return;
	}
	if (!free_range)
		return;
	free_range->owner = owner;
	free_range->start = (uintptr_t)memory;
	free_range->bytes = bytes;
}

void fault_forget(const void *owner)
{
	for (int i = 0; i < RANGES; i++)
		if (ranges[i].owner == owner)
			ranges[i].bytes = 0;
}

/* ---- The handler: async-signal-safe calls alone ---- */

static const struct range *range_of(uintptr_t address)
{
	for (int i = 0; i < RANGES; i++) {
		size_t bytes = ranges[i].bytes;

		if (bytes > 0 && address - ranges[i].start < bytes)
			return &ranges[i];
	}
	return NULL;
}

static bool is_write(const void *context)
{
#ifdef __x86_64__
	/* Bit 1 of the processor's error code. */
	return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
	return false;
#endif
}

/* Puts a writable copy of the block in its place. The kernel copies, as parts of the block may be closed to
 * us (with TIERD_DEBUG=leases), and says so instead of a second fault. */
static bool copy_block(const struct range *range, uintptr_t address, size_t block)
{
	uintptr_t start = address & ~(block - 1), end = start + block;
	struct iovec from, to;
	void *copy;

	if (start < range->start)
		start = range->start;
	if (end > range->start + range->bytes)
		end = range->start + range->bytes;
	copy = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	from = (struct iovec){ (void *)start, end - start };
	to = (struct iovec){ copy, end - start };
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)(end - start) &&
	    mremap(copy, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) !=
		    MAP_FAILED)
		return true;
	munmap(copy, end - start);
	return false;
}

static bool let_write(uintptr_t address)
{
	const struct range *range = range_of(address);

	/* Large ones first, and of reserved huge pages these alone: a process may have some ten thousand
	 * mappings. */
	return range && (copy_block(range, address, 2 << 20) || copy_block(range, address, 4096));
}

static void on_fault(int number, siginfo_t *information, void *context)
{
	int saved_errno = errno;

	if (information->si_code == SEGV_ACCERR && is_write(context) &&
	    let_write((uintptr_t)information->si_addr)) {
		last_address = (uintptr_t)information->si_addr;
		PyErr_SetInterruptEx(number);
	} else {
		/* None of ours: whoever was there before has it, when the instruction is tried again. */
		sigaction(number, &previous, NULL);
		if (information->si_code <= 0)
			raise(number);
	}
	errno = saved_errno;
}

/* ---- From Python ---- */

/* Python has to have a handler of the signal, which then takes what is reported; the process must have ours.
 */
static int set_python_handler(PyObject *handler)
{
	PyObject *module = PyImport_ImportModule("signal");
	PyObject *result = module ? PyObject_CallMethod(module, "signal", "iO", SIGSEGV, handler) : NULL;

	Py_XDECREF(module);
	Py_XDECREF(result);
	return result ? 0 : -1;
}

PyObject *fault_catch(PyObject *self, PyObject *handler)
{
	const struct sigaction own = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	if (is_installed)
		Py_RETURN_NONE;
	if (sigaction(SIGSEGV, NULL, &previous) < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	if (set_python_handler(handler) < 0)
		return NULL;
	if (sigaction(SIGSEGV, &own, NULL) < 0)
		return PyErr_SetFromErrno(PyExc_OSError);
	is_installed = true;
	Py_RETURN_NONE;
}

PyObject *fault_address(PyObject *self, PyObject *unused)
{
	return PyLong_FromUnsignedLongLong(last_address);
}
