/* Whether memory of this process can be read, asked of the kernel: nothing here can fault. Async-signal-safe; errno is
 * left alone. About 150 ns a call. */
#ifndef STROBE_AGENT_PROBE_H
#define STROBE_AGENT_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROBE_PAGE_BYTES = 4096 };

/* Whether all of the bytes from `address` on are mapped and readable right now. */
bool probe_readable(uint64_t address, size_t size_bytes);

/* Copies from memory that another thread may be giving back at this moment. False when it could not be read. */
bool probe_copy(uint64_t address, void *to, size_t size_bytes);

/* Whether these bytes can be written to; nobody else may write to them meanwhile. True, too, where containers forbid
 * to ask. */
bool probe_writable(uint64_t address, size_t size_bytes);

#endif
