/* The C functions of an object that Python code calls, by their machine code's address: what PyMethodDef, the calling
 * slots of types and such name. They stand in its data, so that they are found in stripped files too. */
#ifndef STROBE_SAMPLER_C_FUNCTIONS_H
#define STROBE_SAMPLER_C_FUNCTIONS_H

#include "elf/elf_data.h"
#include "elf/unwind_table.h"

struct c_functions;

/* Looks through the data. `table` tells where functions begin. */
enum status c_functions_find_all(const struct elf_data *data, const struct unwind_table *table,
                                 struct c_functions **functions) MUST_USE;
void c_functions_free(struct c_functions *functions);

/* What Python calls the function that begins at `address`: "sum", "list.append", "math.sqrt"; "list" for what makes a
 * list or is run by calling one; "" when several types share it. NULL: Python code calls no function there. Lives as
 * long as `functions`. */
const char *c_functions_name(const struct c_functions *functions, uint64_t address);

#endif
