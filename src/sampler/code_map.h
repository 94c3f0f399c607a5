/* The machine code that is mapped into one process: which file an address is of. */
#ifndef STROBE_SAMPLER_CODE_MAP_H
#define STROBE_SAMPLER_CODE_MAP_H

#include "sampler/code_files.h"

struct code_map;

struct code_place {
    struct code_file *file; /* NULL: code in no file */
    uint64_t address;       /* in the file's own numbering; the remote one when there is no file */
};

/* Both are borrowed. The process may end meanwhile. */
enum status code_map_new(struct process *process, struct code_files *files, struct code_map **map) MUST_USE;
void code_map_free(struct code_map *map);

/* Where the code at an address comes from. STATUS_NOT_FOUND when no code is there. */
enum status code_map_find(struct code_map *map, remote_addr address, struct code_place *place) MUST_USE;

/* Reads the process's memory map again if it can be out of date: when no code is known at an address where a thread
 * ran at `now_ns`, but not more often than every few milliseconds. */
void code_map_refresh(struct code_map *map, remote_addr address, uint64_t now_ns);

#endif
