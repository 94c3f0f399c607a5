/* The test program's own file, which is as good an object as any. */
#ifndef STROBE_TESTS_UNIT_OWN_FILE_H
#define STROBE_TESTS_UNIT_OWN_FILE_H

#include "elf/elf_data.h"
#include "elf/unwind_table.h"

struct own_file {
    struct elf_file *file;
    struct unwind_table *table;
    struct elf_data *data;
    uint64_t bias; /* address in memory - address in the file */
};

void own_file_open(struct own_file *own);
void own_file_close(struct own_file *own);
/* The address in the file of something in memory. */
uint64_t own_file_address(const struct own_file *own, const void *thing);

#endif
