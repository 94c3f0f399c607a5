#include "elf/symbol_name.h"

#include "base/digest.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Longer ones are cut, mangled as they are. */
enum { MANGLED_MAX_BYTES = 1 << 12, KNOWN_MAX = 1 << 12 };

static const char cut_mark[] = "\u2026";

struct output {
    char *text; /* SYMBOL_NAME_MAX_BYTES */
    size_t size_bytes;
    jmp_buf full;
};

void symbol_names_release(struct symbol_names *names) {
    map_release(&names->known);
    arena_release(&names->texts);
    *names = (struct symbol_names){0};
}

/* Room for the mark is made at the end of a character. */
static void mark_as_cut(char *text) {
    size_t end = SYMBOL_NAME_MAX_BYTES - sizeof cut_mark;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, cut_mark, sizeof cut_mark);
}

/* A few letters of a mangled name can stand for megabytes, and a demangler cannot be told to stop. It holds nothing
 * that would be lost: libiberty's callback forms take no memory but the stack. */
static void take_part(const char *part, size_t size_bytes, void *context) {
    struct output *output = context;
    size_t room = SYMBOL_NAME_MAX_BYTES - 1 - output->size_bytes;
    size_t taken = size_bytes < room ? size_bytes : room;
    if (taken > 0) /* an empty part may be NULL */
        memcpy(output->text + output->size_bytes, part, taken);
    output->size_bytes += taken;
    if (taken < size_bytes)
        longjmp(output->full, 1);
}

/* Rust's first: older names of it are C++'s in form. */
static bool demangle(const char *name, struct output *output) {
    if (setjmp(output->full) != 0) {
        mark_as_cut(output->text);
        return true;
    }
    bool done = rust_demangle_callback(name, DMGL_NO_OPTS, take_part, output) != 0;
    if (!done) {
        output->size_bytes = 0;
        done = cplus_demangle_v3_callback(name, DMGL_NO_OPTS, take_part, output) != 0;
    }
    output->text[output->size_bytes] = '\0';
    return done && output->size_bytes > 0;
}

static void cut(const char *name, char *text) {
    size_t length = strcspn(name, ".@");
    if (length == 0)
        length = strlen(name);
    bool fits = length < SYMBOL_NAME_MAX_BYTES;
    size_t taken = fits ? length : SYMBOL_NAME_MAX_BYTES - 1;
    memcpy(text, name, taken);
    text[taken] = '\0';
    if (!fits)
        mark_as_cut(text);
}

static bool is_mangled(const char *name) {
    return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R') && strnlen(name, MANGLED_MAX_BYTES) < MANGLED_MAX_BYTES;
}

/* Without it names are worked out again. */
static void remember(struct symbol_names *names, uint64_t key) {
    if (names->known.count >= KNOWN_MAX) {
        map_clear(&names->known);
        arena_release(&names->texts);
    }
    char *text = arena_copy_text(&names->texts, names->text, strlen(names->text));
    if (text == NULL || map_set(&names->known, key, (uint64_t)(uintptr_t)text) != STATUS_OK)
        return;
}

static const char *demangled(struct symbol_names *names, const char *name) {
    uint64_t key = digest_of(name, strlen(name)).low, known = 0;
    if (map_get(&names->known, key, &known))
        return (const char *)(uintptr_t)known;
    char part[MANGLED_MAX_BYTES];
    struct output output = {.text = names->text};
    /* Rust's older names have dots in them; of C++'s what follows one is the compiler's, which "[clone]" would tell of.
     */
    size_t length =
        name[1] == 'Z' && strchr(name, '$') == NULL && strstr(name, "..") == NULL ? strcspn(name, ".@") : strlen(name);
    memcpy(part, name, length);
    part[length] = '\0';
    if (!demangle(part, &output))
        cut(name, names->text);
    remember(names, key);
    return names->text;
}

const char *symbol_names_plain(struct symbol_names *names, const char *name) {
    if (is_mangled(name))
        return demangled(names, name);
    cut(name, names->text);
    return names->text;
}
