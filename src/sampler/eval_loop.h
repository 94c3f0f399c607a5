/* Where in the interpreter's file the evaluation loop is: _PyEval_EvalFrameDefault with all its parts, or, in builds
 * that jump from instruction to instruction, the functions of them all. */
#ifndef STROBE_SAMPLER_EVAL_LOOP_H
#define STROBE_SAMPLER_EVAL_LOOP_H

#include "elf/elf_data.h"
#include "elf/unwind_table.h"

enum { EVAL_LOOP_RANGES_MAX = 1024 };

struct eval_loop {
    struct unwind_range ranges[EVAL_LOOP_RANGES_MAX]; /* sorted */
    size_t count;
};

/* `address`: of _PyEval_EvalFrameDefault in the file's own numbering. STATUS_NOT_FOUND when no function is known there.
 */
enum status eval_loop_find(struct elf_file *file, const struct elf_data *data, const struct unwind_table *table,
                           uint64_t address, struct eval_loop *loop) MUST_USE;

bool eval_loop_holds(const struct eval_loop *loop, uint64_t address);

#endif
