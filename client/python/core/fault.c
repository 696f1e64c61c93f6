#include "core/fault.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

/* More than a process has jobs and lost connections; of what comes after them writes end the process. */
#define RANGES 64

/* The originals of so many blocks, of 2 MiB or of a page, can be kept. */
#define BLOCKS 4096
#define LARGE_BLOCK ((size_t)2 << 20)
#define PAGE ((size_t)4096)

/* Changed with the interpreter's lock, read by the handler at any time: a range of 0 bytes is none. */
static struct range {
	const void *owner;
	_Atomic uintptr_t start;
	_Atomic size_t bytes;
	_Atomic bool is_lost; /* fault_undo() cannot undo all */
} ranges[RANGES];

/* In whose place a copy is. */
static struct block {
	const void *owner;
	uintptr_t start;
	size_t bytes;
	void *original; /* where its memory is mapped meanwhile */
} blocks[BLOCKS];
static unsigned block_count;

/* Guards the blocks. Its holder makes system calls alone, and so comes to no handler that wants it. */
static atomic_flag lock = ATOMIC_FLAG_INIT;

static struct sigaction previous;
static bool is_installed;
static _Atomic uintptr_t last_address;

static void take_lock(void)
{
	while (atomic_flag_test_and_set(&lock))
		sched_yield();
}

static void give_lock(void)
{
	atomic_flag_clear(&lock);
}

/* ---- What is watched ---- */

void fault_watch(const void *owner, const void *memory, size_t bytes)
{
	struct range *free_range = NULL;

	for (int i = 0; i < RANGES; i++) {
		if (ranges[i].bytes == 0) {
			free_range = &ranges[i];
		} else if (ranges[i].owner == owner && ranges[i].start == (uintptr_t)memory) {
			/* Other memory may lie where one was that has gone. */
			ranges[i].bytes = bytes;
			return;
		}
	}
	if (!free_range)
		return;
	free_range->owner = owner;
	free_range->is_lost = false;
	free_range->start = (uintptr_t)memory;
	free_range->bytes = bytes;
}

void fault_forget(const void *owner)
{
	for (int i = 0; i < RANGES; i++)
		if (ranges[i].owner == owner)
			ranges[i].bytes = 0;
	(void)fault_undo(owner, NULL, 0);
}

/* ---- The handler: async-signal-safe calls alone ---- */

static struct range *range_of(uintptr_t address)
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

/* Memory may be closed to us, with TIERD_DEBUG=leases: the kernel says so instead of a second fault. */
static bool can_read(uintptr_t from, void *to, size_t bytes)
{
	struct iovec source = { (void *)from, bytes }, target = { to, bytes };

	return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == (ssize_t)bytes;
}

/* Moves the copy there, and keeps what was there elsewhere. */
static bool put_copy(struct range *range, uintptr_t start, size_t bytes, void *copy)
{
	/* mremap() of 0 bytes makes a second mapping of a shared one. */
	void *original = block_count < BLOCKS ? mremap((void *)start, 0, bytes, MREMAP_MAYMOVE) : MAP_FAILED;

	if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED) {
		if (original != MAP_FAILED)
			munmap(original, bytes);
		return false;
	}
	if (original == MAP_FAILED)
		range->is_lost = true;
	else
		blocks[block_count++] = (struct block){ range->owner, start, bytes, original };
	return true;
}

/* Puts a writable copy of the block in its place. */
static bool copy_block(struct range *range, uintptr_t address, size_t block)
{
	uintptr_t start = address & ~(block - 1), end = start + block;
	void *copy;

	if (start < range->start)
		start = range->start;
	if (end > range->start + range->bytes)
		end = range->start + range->bytes;
	copy = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return false;
	if (can_read(start, copy, end - start) && put_copy(range, start, end - start, copy))
		return true;
	munmap(copy, end - start);
	return false;
}

static bool is_copied(uintptr_t address)
{
	for (unsigned i = 0; i < block_count; i++)
		if (address - blocks[i].start < blocks[i].bytes)
			return true;
	return false;
}

/* Another thread has come first, or the library has closed the page of the copy and opened it again. */
static bool open_copy(uintptr_t address)
{
	uintptr_t page = address & ~(PAGE - 1);
	char byte;

	return can_read(page, &byte, 1) && mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE) == 0;
}

static bool let_write(uintptr_t address)
{
	struct range *range = range_of(address);
	bool is_open;

	if (!range)
		return false;
	/* Signals are handled by the main thread, and what others compute meanwhile nobody stops. Those of
	 * OpenMP have no state, and are waited for. */
	if (PyGILState_GetThisThreadState() && gettid() != getpid())
		range->is_lost = true;
	take_lock();
	/* Large ones first, and of reserved huge pages these alone: a process may have some ten thousand
	 * mappings. */
	is_open = is_copied(address)
			  ? open_copy(address)
			  : copy_block(range, address, LARGE_BLOCK) || copy_block(range, address, PAGE);
	give_lock();
	return is_open;
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

/* ---- Afterwards ---- */

/* A mapping that the library has closed meanwhile stays closed. */
static bool put_back(const struct block *block)
{
	bool is_closed[LARGE_BLOCK / PAGE];
	size_t pages = (block->bytes + PAGE - 1) / PAGE;
	char byte;

	for (size_t i = 0; i < pages; i++)
		is_closed[i] = !can_read(block->start + i * PAGE, &byte, 1);
	if (mremap(block->original, block->bytes, block->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
		   (void *)block->start) == MAP_FAILED)
		return false;
	for (size_t i = 0; i < pages; i++)
		if (is_closed[i])
			(void)mprotect((void *)(block->start + i * PAGE), PAGE, PROT_NONE);
	return true;
}

bool fault_undo(const void *owner, const void *memory, size_t bytes)
{
	bool is_undone = true;
	unsigned kept = 0;

	for (int i = 0; i < RANGES; i++)
		is_undone &= ranges[i].bytes == 0 || ranges[i].owner != owner || !ranges[i].is_lost;
	take_lock();
	for (unsigned i = 0; i < block_count; i++) {
		const struct block *block = &blocks[i];

		if (block->owner != owner) {
			blocks[kept++] = *block;
		} else if (block->start - (uintptr_t)memory >= bytes || !put_back(block)) {
			munmap(block->original, block->bytes);
			is_undone = false;
		}
	}
	block_count = kept;
	give_lock();
	return is_undone;
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
