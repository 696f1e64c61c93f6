/* The pages that daemon and clients share, and the lease protocol on them: who may read a unit, without a
 * system call.
 *
 * It works like hazard pointers. The directory (written by the daemon, read by the clients) has a word for
 * each unit; a lease page (one for each client, written by it and the daemon) a counter for each unit.
 *
 * - gather: the word is RESIDENT and new enough? count up, look again: the same word? the unit stays. Else
 *   count down, and ask the daemon.
 * - evict: RESIDENT → DRAINING, then look at all counters: one is not 0? back to RESIDENT. Else the memory is
 *   free.
 * - update: RESIDENT → UPDATING in the same way, then RESIDENT with the next version.
 *
 * Each side writes, then reads the other's word, all sequentially consistent: either the client sees the new
 * state or the daemon sees the lease. tests/model has this as a Promela model. The daemon believes nothing
 * that it reads in a lease page: a wrong counter can keep the client's own units in memory, and ends with its
 * session. */
#ifndef TIERD_PROTO_PAGES_H
#define TIERD_PROTO_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/versions.h"

#define PAGES_MAGIC 0x64726974 /* "tird" */
#define PAGES_VERSION 8
#define PAGES_VERSIONS ((struct versions){ PAGES_VERSION, PAGES_VERSION }) /* that this code can use */

/* ---- Directory ---- */

enum directory_state {
	DIRECTORY_ABSENT,
	DIRECTORY_LOADING,
	DIRECTORY_RESIDENT,
	DIRECTORY_DRAINING, /* may be evicted, if nobody has a lease */
	DIRECTORY_UPDATING,
};

/* A word: 4 bits of state, 20 of reloads (counts how often the bytes behind the word were replaced, so that a
 * client that looks twice cannot take a later content for the same), 40 of offset in the arena in units of
 * 256 bytes. */
#define DIRECTORY_OFFSET_UNIT 256
#define DIRECTORY_RELOADS_MASK UINT64_C(0xfffff)

static inline uint64_t directory_word(enum directory_state state, uint64_t reloads, uint64_t offset)
{
	return (uint64_t)state << 60 | (reloads & DIRECTORY_RELOADS_MASK) << 40 |
	       offset / DIRECTORY_OFFSET_UNIT;
}

static inline enum directory_state directory_word_state(uint64_t word)
{
	return (enum directory_state)(word >> 60);
}

static inline uint64_t directory_word_reloads(uint64_t word)
{
	return word >> 40 & DIRECTORY_RELOADS_MASK;
}

static inline uint64_t directory_word_offset(uint64_t word)
{
	return (word & UINT64_C(0xffffffffff)) * DIRECTORY_OFFSET_UNIT;
}

#define UNIT_SECTIONS 13 /* see unit_layout.h */

struct directory_entry {
	_Atomic uint64_t word;
	_Atomic uint64_t version; /* the last step decided and applied to the unit */
};

struct directory_header {
	uint32_t magic, version;
	uint32_t unit_count;
	_Atomic uint32_t epoch; /* a client of another epoch gets -ESTALE */
	uint64_t section_count; /* of all units, of those sections that have elements */
	uint64_t entries_offset, sections_offset;
};

static inline size_t directory_bytes(uint32_t unit_count, uint64_t section_count)
{
	return 4096 + unit_count * sizeof(struct directory_entry) + section_count * sizeof(uint64_t);
}

static inline struct directory_entry *directory_entries(struct directory_header *header)
{
	return (struct directory_entry *)((char *)header + 4096);
}

/* Where they begin, from the offset in the word, in bytes: one unit's after the other's, and of a unit in
 * their order. Constant once the job is ready. */
static inline uint64_t *directory_sections(struct directory_header *header)
{
	return (uint64_t *)(directory_entries(header) + header->unit_count);
}

/* ---- Lease page ---- */

#define TRACE_ENTRIES 4096 /* a power of two */

/* State of a gradient buffer; the client takes and pushes, the daemon frees. */
enum gradient_buffer_state { GRADIENT_BUFFER_FREE, GRADIENT_BUFFER_HELD, GRADIENT_BUFFER_PUSHED };

/* Of a rank, as the ready says. Without a room they lie side by side. The last one may be larger: then it is
 * there for units with more gradients than the others have room for, and for those alone.
 * In a room each takes any unit, is as large as that unit's gradients, and lies where the rank wants it. */
struct gradient_buffers {
	uint32_t count;
	uint64_t bytes, last_bytes; /* of each, and of the last; of a room 0 */
	uint64_t room;		    /* bytes of all together; 0: there is none */
};

/* Bytes of a rank's gradients. */
struct gradient_span {
	uint64_t first, bytes;
};

static inline bool gradient_spans_meet(struct gradient_span a, struct gradient_span b)
{
	return a.first < b.first ? b.first - a.first < a.bytes : a.first - b.first < b.bytes;
}

static inline bool gradient_buffer_takes(const struct gradient_buffers *buffers, uint32_t buffer,
					 uint64_t bytes)
{
	bool is_last = buffer + 1 == buffers->count;

	if (buffers->room > 0)
		return buffer < buffers->count && bytes <= buffers->room;
	if (bytes > buffers->bytes)
		return is_last && bytes <= buffers->last_bytes;
	return buffer < buffers->count && (!is_last || buffers->last_bytes == buffers->bytes);
}

/* Without a room. */
static inline uint64_t gradient_buffer_offset(const struct gradient_buffers *buffers, uint32_t buffer)
{
	return buffer * buffers->bytes;
}

struct lease_header {
	uint32_t magic, version;
	uint32_t unit_count, buffer_count;
	/* Units gathered so far: the daemon learns the order from the ring. It looks at each gather that asks
	 * it, ring of the doorbell and step; of more than TRACE_ENTRIES between two looks the first are not
	 * learned. */
	_Alignas(64) _Atomic uint64_t trace_head;
	/* The daemon asks for a ring of the doorbell when trace_head reaches this; UINT64_MAX: never. */
	_Alignas(64) _Atomic uint64_t doorbell_at;
	/* Somebody waits for a slot: the daemon asks for a ring at the next release. */
	_Atomic uint32_t is_release_wanted;
};

/* An entry: the low 32 bits of its number, then the unit. */
static inline _Atomic uint64_t *lease_trace(struct lease_header *header)
{
	return (_Atomic uint64_t *)((char *)header + 4096);
}

static inline _Atomic uint32_t *lease_buffers(struct lease_header *header)
{
	return (_Atomic uint32_t *)(lease_trace(header) + TRACE_ENTRIES);
}

/* Offsets follow from counts that the caller knows: those in the page can be overwritten by the client. */
static inline _Atomic uint32_t *lease_counters(struct lease_header *header, uint32_t buffer_count)
{
	return lease_buffers(header) + (buffer_count + 15) / 16 * 16;
}

static inline size_t lease_bytes(uint32_t unit_count, uint32_t buffer_count)
{
	return 4096 + sizeof(uint64_t) * TRACE_ENTRIES +
	       sizeof(uint32_t) * ((buffer_count + 15) / 16 * 16 + (size_t)unit_count);
}

/* ---- The client's side ---- */

/* False: there was no lease to give back. */
static inline bool lease_give(_Atomic uint32_t *lease)
{
	uint32_t count = atomic_load_explicit(lease, memory_order_relaxed);

	while (count != 0)
		if (atomic_compare_exchange_weak_explicit(lease, &count, count - 1, memory_order_seq_cst,
							  memory_order_relaxed))
			return true;
	return false;
}

/* No word that there is. */
#define LEASE_OWED UINT64_MAX

/* Takes a lease if the unit is resident at the awaited version at least (0 for frozen units). ret_word: the
 * word under which it is held. If not, it is left alone, or LEASE_OWED: another thread has given back the
 * lease that was counted for a moment, and owes its own, in another lease page. */
static inline bool lease_take(struct directory_entry *entry, _Atomic uint32_t *lease, uint64_t awaited,
			      uint64_t *ret_word)
{
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);

	for (;;) {
		if (directory_word_state(word) != DIRECTORY_RESIDENT ||
		    atomic_load_explicit(&entry->version, memory_order_acquire) < awaited)
			return false;
		atomic_fetch_add_explicit(lease, 1, memory_order_seq_cst);
		uint64_t again = atomic_load_explicit(&entry->word, memory_order_seq_cst);
		if (again == word) {
			*ret_word = word;
			return true;
		}
		if (!lease_give(lease)) {
			*ret_word = LEASE_OWED;
			return false;
		}
		word = again;
	}
}

/* After a release; true: the daemon asked to be told, once. It sets the wish and then looks at the leases, we
 * give the lease and then look at the wish. */
static inline bool release_is_awaited(_Atomic uint32_t *is_release_wanted)
{
	if (atomic_load_explicit(is_release_wanted, memory_order_seq_cst) == 0)
		return false;
	atomic_store_explicit(is_release_wanted, 0, memory_order_relaxed);
	return true;
}

/* Appends units to the trace; true: the daemon asked to be told, once. Any thread: an entry carries its own
 * number, so that the daemon sees whether it has been written yet. */
static inline bool trace_append(struct lease_header *header, const uint32_t *units, size_t count)
{
	/* Sequentially consistent against the daemon, which sets doorbell_at and then looks at the head
	 * again. */
	uint64_t head = atomic_fetch_add_explicit(&header->trace_head, count, memory_order_seq_cst);

	for (uint64_t at = head; at < head + count; at++)
		atomic_store_explicit(&lease_trace(header)[at % TRACE_ENTRIES], at << 32 | units[at - head],
				      memory_order_release);
	if (head + count < atomic_load_explicit(&header->doorbell_at, memory_order_seq_cst))
		return false;
	atomic_store_explicit(&header->doorbell_at, UINT64_MAX, memory_order_relaxed);
	return true;
}

/* ---- The daemon's side ---- */

/* RESIDENT → DRAINING or UPDATING. The caller then looks at every client's counter (lease_is_held) and, if
 * one is not 0, restores the word that this returns. */
static inline uint64_t directory_close(struct directory_entry *entry, enum directory_state state)
{
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

	atomic_store_explicit(&entry->word, (word & ~(UINT64_C(15) << 60)) | (uint64_t)state << 60,
			      memory_order_seq_cst);
	return word;
}

static inline bool lease_is_held(_Atomic uint32_t *lease)
{
	return atomic_load_explicit(lease, memory_order_seq_cst) != 0;
}

static inline void directory_restore(struct directory_entry *entry, uint64_t word)
{
	atomic_store_explicit(&entry->word, word, memory_order_release);
}

/* Makes the bytes at offset visible. The version goes first: a client that sees the word sees it too. */
static inline void directory_publish(struct directory_entry *entry, uint64_t offset, uint64_t version)
{
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

	atomic_store_explicit(&entry->version, version, memory_order_release);
	atomic_store_explicit(&entry->word,
			      directory_word(DIRECTORY_RESIDENT, directory_word_reloads(word) + 1, offset),
			      memory_order_release);
}

static inline void directory_set(struct directory_entry *entry, enum directory_state state)
{
	uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

	atomic_store_explicit(&entry->word, directory_word(state, directory_word_reloads(word), 0),
			      memory_order_release);
}

#endif
