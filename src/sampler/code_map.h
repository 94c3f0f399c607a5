/* The machine code that is mapped into one process: which file an address is of, and what that file says of it. Files
 * are opened, and their tables read, when first asked about. */
#ifndef STROBE_SAMPLER_CODE_MAP_H
#define STROBE_SAMPLER_CODE_MAP_H

#include "elf/elf_data.h"
#include "elf/machine_code.h"
#include "elf/symbol_table.h"
#include "elf/unwind_table.h"
#include "process/process.h"

struct code_map;

enum code_kind {
    CODE_SYSTEM, /* on whose behalf the C library, the dynamic linker, an allocator ran, its caller tells */
    CODE_INTERPRETER,
    CODE_LIBRARY,
};

/* One file, or what the kernel maps by itself ("[vdso]"). */
struct code_file {
    const char *path;
    enum code_kind kind;
    uint32_t index; /* from 0, in the order in which they were met */
    uint16_t machine;
    struct elf_file *file;      /* NULL when it could not be opened */
    struct unwind_table *table; /* NULL when it has none */
};

struct code_place {
    struct code_file *file; /* NULL: code in no file */
    uint64_t address;       /* in the file's own numbering; the remote one when there is no file */
};

/* `process` is borrowed. interpreter_address: an address in the interpreter's file, 0: not known. */
enum status code_map_new(struct process *process, remote_addr interpreter_address, struct code_map **map) MUST_USE;
void code_map_free(struct code_map *map);

/* Where the code at an address comes from. STATUS_NOT_FOUND when no code is there. */
enum status code_map_find(struct code_map *map, remote_addr address, struct code_place *place) MUST_USE;

/* Reads the process's memory map again if it can be out of date: when no code is known at an address where a thread
 * ran at `now_ns`, but not more often than every few milliseconds. */
void code_map_refresh(struct code_map *map, remote_addr address, uint64_t now_ns);

/* The interpreter's file with its place of `interpreter_address`, if that is known. */
enum status code_map_interpreter(struct code_map *map, struct code_place *place) MUST_USE;

enum status code_place_read_row(struct code_map *map, const struct code_place *place, struct unwind_row *row) MUST_USE;
/* NULL: not known. */
const struct unwind_range *code_place_range(const struct code_place *place);
/* The name, and the address that it begins at, of the function, from the symbols that the file or its split-off debug
 * file has. */
enum status code_place_symbol(struct code_map *map, const struct code_place *place, struct symbol *symbol) MUST_USE;
/* What kind of call returns to the place. */
enum machine_call code_place_call(const struct code_place *place, uint64_t *target);

#endif
