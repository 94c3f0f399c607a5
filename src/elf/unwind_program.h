/* The instructions of .eh_frame. This room's own. */
#ifndef STROBE_ELF_UNWIND_PROGRAM_H
#define STROBE_ELF_UNWIND_PROGRAM_H

#include "elf/unwind_table.h"

/* What is left to read. After a failure everything reads as 0. */
struct bytes {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

uint8_t bytes_u8(struct bytes *bytes);
uint16_t bytes_u16(struct bytes *bytes);
uint32_t bytes_u32(struct bytes *bytes);
uint64_t bytes_u64(struct bytes *bytes);
uint64_t bytes_uleb(struct bytes *bytes);
int64_t bytes_sleb(struct bytes *bytes);
bool bytes_skip(struct bytes *bytes, uint64_t size_bytes);

/* DWARF's numbers of an architecture's registers. */
struct unwind_registers {
    uint64_t stack_pointer;
    uint64_t frame_pointer;
    uint64_t return_address;
    bool has_link_register; /* the return address is in that register until a function saves it */
};
/* NULL: not an architecture that strobe knows. */
const struct unwind_registers *unwind_registers_of(uint16_t machine);

struct unwind_cie {
    uint64_t code_alignment;
    int64_t data_alignment;
    uint64_t return_register;
    uint8_t encoding;
    bool has_augmentation;
    bool signal_frame;
    struct bytes program; /* what holds at the start of each function */
};

/* The row of `address` in a function that begins at `start`. */
enum status unwind_program_run(const struct unwind_registers *registers, const struct unwind_cie *cie,
                               struct bytes program, uint64_t start, uint64_t address, struct unwind_row *row) MUST_USE;

#endif
