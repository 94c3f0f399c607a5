/* The C functions of an object that Python code calls, by their machine code's address: what PyMethodDef, the calling
 * slots of types and such name. They stand in its data, so that they are found in stripped files too. */
#ifndef STROBE_SAMPLER_C_FUNCTIONS_H
#define STROBE_SAMPLER_C_FUNCTIONS_H

#include "elf/elf_data.h"
#include "elf/unwind_table.h"

struct c_functions;

enum c_function_kind {
    C_FUNCTION_METHOD, /* of a PyMethodDef */
    C_FUNCTION_SLOT,   /* of a type: what runs when it or an object of it is called */
    /* What others do at their end, by a jump, and to which a caller's call has then gone as it seems; or a part of one
     * that was laid out apart. Also called by functions that have nothing to do with Python's calls. */
    C_FUNCTION_CONTINUATION,
    /* Called by the evaluation loop itself in place of a builtin (CALL_STR_1, CALL_TUPLE_1, CALL_LEN,
     * CALL_ISINSTANCE: 3.11 and later). Also called for much else. */
    C_FUNCTION_SHORTCUT,
    /* Of a type, but not for calls: releases, allocates, visits its objects. */
    C_FUNCTION_UPKEEP,
};

struct c_function {
    enum c_function_kind kind;
    uint8_t round; /* of C_FUNCTION_CONTINUATION: how many jumps away */
    /* What Python calls it: "sum", "list.append", "math.sqrt"; "list" for what makes a list or is run by calling one;
     * "math.*" when several of a kind share it, "" when several of no kind do. */
    const char *name;
};

/* Looks through a file's data. `table` tells where functions begin. */
enum status c_functions_find_all(struct elf_file *file, const struct elf_data *data, const struct unwind_table *table,
                                 struct c_functions **functions) MUST_USE;
void c_functions_free(struct c_functions *functions);

/* The function that begins at `address`, or to which the stub there leads. NULL: Python code calls none there. Lives as
 * long as `functions`. */
const struct c_function *c_functions_find(const struct c_functions *functions, uint64_t address);

#endif
