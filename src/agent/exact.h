/* Memory without sampling: every block is counted at its site (agent/sites.h), and is known by its address until it is
 * given back (agent/blocks.h). Each thread adds up what it does in cells of its own, one for each site, which are told
 * now and then (struct wire_counts): no lock and no shared cache line. What finds no room in the ring waits in its
 * cell.
 *
 * agent/heap.c calls this instead of what it does itself. All may be called at any moment, but where it says that the
 * thread is busy (agent/busy.h). */
#ifndef STROBE_AGENT_EXACT_H
#define STROBE_AGENT_EXACT_H

#include "agent/heap.h"

/* The block was given out, or has grown: then its `id` is not 0, and it belongs to this site from now on. The thread is
 * busy. */
void exact_note_given(struct wire_region *region, const struct heap_block *block, uint32_t domain, bool is_final);
/* The block is given back. The thread is busy, or it is not. */
void exact_give_back(uint64_t address, bool is_busy, bool is_final);
/* The first two for what Python's allocators hand out and get back, where the thread has its state: the quick way.
 * False when it has to be done the long way. */
bool exact_given(uint64_t address, size_t size_bytes);
bool exact_back(uint64_t address);
/* A block is about to be resized, and has been: as heap_take_out and heap_keep. */
bool exact_take_out(uint64_t address, struct sampled *block);
/* Also for Python's allocators, the quick way: exact_keep, and exact_note_given of what it has grown by. */
bool exact_resized(const struct sampled *block, uint64_t address, size_t size_bytes);
void exact_keep(const struct sampled *block, uint64_t address, uint64_t size_bytes, bool is_busy, bool is_final);

/* Tells what has come together, as far as there is room: half of the ring, or with `everything` all. The thread is
 * busy. */
void exact_flush(struct wire_region *region, bool everything);
/* Before anything else. */
void exact_begin(void);
/* The calling thread is not counted any more. */
void exact_end_thread(void);
/* In a child of fork. */
void exact_forget(void);

#endif
