/* What a function is called in its source, from what symbol tables call it. */
#ifndef STROBE_ELF_SYMBOL_NAME_H
#define STROBE_ELF_SYMBOL_NAME_H

#include "base/arena.h"
#include "base/map.h"

enum { SYMBOL_NAME_MAX_BYTES = 256 };

/* A cache of the names that had to be worked out. Zero-initialised is an empty one. */
struct symbol_names {
    struct map known; /* by digest: texts in the arena */
    struct arena texts;
    char text[SYMBOL_NAME_MAX_BYTES];
};

void symbol_names_release(struct symbol_names *names);

/* C++'s and Rust's names as a person writes them, without parameters; without what compilers append to parts and clones
 * of a function (name.part.0, name.cold) and linkers as a version (name@@GLIBC_2.2.5). What does not fit into
 * SYMBOL_NAME_MAX_BYTES, the NUL included, is cut off, and "…" stands for it. The text lives until the next call, or as
 * long as `name`. Names of hostile files cost no more than others. */
const char *symbol_names_plain(struct symbol_names *names, const char *name);

#endif
