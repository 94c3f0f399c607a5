/* The C stack of a thread, from the registers and the words that were copied off it. */
#ifndef STROBE_UNWIND_NATIVE_STACK_H
#define STROBE_UNWIND_NATIVE_STACK_H

#include "base/memory.h"
#include "elf/unwind_table.h"

/* Where a walk stands. `words` are those from `words_address` up. */
struct native_stack {
    remote_addr program_counter;
    remote_addr stack_pointer;
    remote_addr frame_pointer; /* 0: not known */
    remote_addr return_register;
    bool innermost; /* the program counter was interrupted there; else it is a return address */
    remote_addr words_address;
    const uint64_t *words;
    size_t word_count;
};

/* The address to look up: a call can be a function's last instruction. */
static inline remote_addr native_stack_place(const struct native_stack *stack) {
    return stack->innermost ? stack->program_counter : stack->program_counter - 1;
}

/* To the caller. STATUS_NOT_FOUND when there is none, STATUS_LIMIT when it is beyond what was copied, STATUS_UNREADABLE
 * when a register is needed that is not known; the walk then stands where it stood. */
enum status native_stack_step(struct native_stack *stack, const struct unwind_row *row) MUST_USE;

/* To the next word for which `is_return_address` says so: when there is no row for a place. */
enum status native_stack_scan(struct native_stack *stack, bool (*is_return_address)(void *context, remote_addr address),
                              void *context) MUST_USE;

#endif
