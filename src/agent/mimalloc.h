/* How large a block of CPython's mimalloc is, from mimalloc's own account of the page that it lies in: there is no
 * function of the interpreter's that says so. The account's layout is not taken for granted: the first blocks, whose
 * sizes are known, are read with care and must be what they should be. */
#ifndef STROBE_AGENT_MIMALLOC_H
#define STROBE_AGENT_MIMALLOC_H

#include <stddef.h>

/* What a block takes that was given out for so many bytes; the layout is judged by it. 0: not known. Any thread. */
size_t mimalloc_new_block_size(const void *block, size_t size_bytes);
/* The same of any block that mimalloc gave out and has not back yet. */
size_t mimalloc_block_size(const void *block);

#endif
