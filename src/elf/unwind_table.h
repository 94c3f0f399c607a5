/* What .eh_frame says of an object's code: how far each function (or part of one) reaches, which it says of functions
 * without a symbol too, and where the frame of the caller is. Addresses are in the file's own numbering. */
#ifndef STROBE_ELF_UNWIND_TABLE_H
#define STROBE_ELF_UNWIND_TABLE_H

#include "elf/elf_image.h"

struct unwind_table;

/* A stretch of code that is described as one: a function, or its hot or its cold part. */
struct unwind_range {
    uint64_t start;
    uint64_t end;
    uint32_t entry; /* offset of its FDE in .eh_frame */
};

enum unwind_register { UNWIND_STACK_POINTER, UNWIND_FRAME_POINTER, UNWIND_OTHER_REGISTER };

/* How to come from one address to its caller: the canonical frame address is a register and an offset, or, when
 * `dereferenced`, the word that stands there. */
struct unwind_row {
    enum unwind_register base;
    bool dereferenced;
    int64_t offset;
    bool outermost;           /* there is no caller */
    bool return_in_register;  /* the link register has not been saved */
    int64_t return_offset;    /* from the canonical frame address */
    bool frame_pointer_saved; /* the caller's; else it is unchanged */
    int64_t frame_pointer_offset;
};

/* STATUS_NOT_FOUND when the file has none. What is malformed is left out. The file must outlive the table. */
enum status unwind_table_load(struct elf_file *file, struct unwind_table **table) MUST_USE;
void unwind_table_free(struct unwind_table *table);

/* All ranges, sorted, none within another. */
const struct unwind_range *unwind_table_ranges(const struct unwind_table *table, size_t *count);
/* NULL: none holds it. */
const struct unwind_range *unwind_table_find(const struct unwind_table *table, uint64_t address);
/* STATUS_NOT_FOUND when nothing is known of the address or when it is beyond what struct unwind_row can say. */
enum status unwind_table_read_row(const struct unwind_table *table, uint64_t address, struct unwind_row *row) MUST_USE;

#endif
