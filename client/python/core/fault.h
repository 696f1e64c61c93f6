/* Faults: a write to gathered memory, which is mapped read-only, becomes an exception instead of the
 * process's end.
 *
 * The write goes to a copy of the block that is this process's own, so that the instruction can end, and
 * Python's handler of SIGSEGV is called as soon as the interpreter comes to it. It may put the block back.
 * Nothing of the daemon's changes. */
#ifndef TIERD_CORE_FAULT_H
#define TIERD_CORE_FAULT_H

#include "core/core.h"

/* From now on writes within this memory are caught, until fault_forget() of the same owner. Of one owner
 * there may be several; what has no place any more is not caught. */
void fault_watch(const void *owner, const void *memory, size_t bytes);
void fault_forget(const void *owner);

/* Takes copies away, so that this memory, which the owner has mapped, is the daemon's again. False: some were
 * elsewhere or could not be kept track of, or another thread of the interpreter has written and may go on. */
bool fault_undo(const void *owner, const void *memory, size_t bytes);

/* Functions of the module. */
PyObject *fault_catch(PyObject *self, PyObject *handler);
PyObject *fault_address(PyObject *self, PyObject *unused);

#endif
