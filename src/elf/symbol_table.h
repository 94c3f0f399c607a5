/* Names of an object's functions by address. */
#ifndef STROBE_ELF_SYMBOL_TABLE_H
#define STROBE_ELF_SYMBOL_TABLE_H

#include "elf/elf_image.h"

struct symbol_table;

struct symbol {
    uint64_t start; /* in the file's own numbering */
    uint64_t size_bytes;
    const char *name; /* as in the file, mangled for example; lives as long as the file it is from */
};

/* The functions of .symtab and .dynsym, sorted; with `debug`, which may be NULL, also those of the file that was split
 * off. Both files must outlive the table. STATUS_NOT_FOUND when there are none. */
enum status symbol_table_load(struct elf_file *file, struct elf_file *debug, struct symbol_table **table) MUST_USE;
void symbol_table_free(struct symbol_table *table);

/* Whether `file` has symbols of its own that are not exported. */
bool symbol_table_has_local(struct elf_file *file);

/* The function that holds an address. One of unknown size (assembly) reaches to the next. */
enum status symbol_table_find(const struct symbol_table *table, uint64_t address, struct symbol *symbol) MUST_USE;

#endif
