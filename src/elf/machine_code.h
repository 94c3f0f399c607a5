/* As much of x86-64's and aarch64's machine code as it takes to see calls and jumps. */
#ifndef STROBE_ELF_MACHINE_CODE_H
#define STROBE_ELF_MACHINE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MACHINE_CODE_CALL_BYTES = 7 }; /* the longest call */

enum machine_call { MACHINE_CALL_NONE, MACHINE_CALL_DIRECT, MACHINE_CALL_IMPORTED, MACHINE_CALL_INDIRECT };

/* What stands before a return address: `before` are the MACHINE_CODE_CALL_BYTES bytes in front of it. *target is where
 * a direct call goes. Bytes that look like a call can be the end of something else: see that the target begins a
 * function. */
enum machine_call machine_code_call(uint16_t machine, const uint8_t before[MACHINE_CODE_CALL_BYTES], uint64_t address,
                                    uint64_t *target);

/* Direct jumps, conditional or not, that leave [start, start + size_bytes). Where instructions have no fixed length,
 * bytes within others are taken for jumps too: such targets are few, and scattered. Returns how many there are; no more
 * than `capacity` are stored. */
size_t machine_code_jumps(uint16_t machine, const uint8_t *code, size_t size_bytes, uint64_t start, uint64_t *targets,
                          size_t capacity);

/* Where a stub of the procedure linkage table keeps the address that it jumps to: `code` are the
 * MACHINE_CODE_STUB_BYTES bytes at `address`. 0: not such a stub. */
enum { MACHINE_CODE_STUB_BYTES = 16 };
uint64_t machine_code_stub(uint16_t machine, const uint8_t code[MACHINE_CODE_STUB_BYTES], uint64_t address);

/* Whether a thread that is about to run at `address` comes from a system call: `before` as above. */
bool machine_code_system_call(uint16_t machine, const uint8_t before[MACHINE_CODE_CALL_BYTES]);

#endif
