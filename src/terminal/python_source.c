#include "terminal/python_source.h"

#include "base/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool ends_like_python(const char *name) {
    static const char *const ENDINGS[] = {".py", ".pyw", ".pyx"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ENDINGS / sizeof ENDINGS[0]; i++) {
        size_t ending = strlen(ENDINGS[i]);
        if (length > ending && strcmp(name + length - ending, ENDINGS[i]) == 0)
            return true;
    }
    return false;
}

/* A link x.py may lead anywhere, so it is the name at its end that counts. What was opened by another way than the path
 * (in another root) keeps the name that it was asked for by. */
static bool is_named_python(const char *path, const struct stat *info) {
    struct stat found;
    char *real = realpath(path, NULL);
    bool is_same =
        real != NULL && stat(real, &found) == 0 && found.st_dev == info->st_dev && found.st_ino == info->st_ino;
    bool is_python = ends_like_python(is_same ? real : path);
    free(real);
    return is_python;
}

static size_t line_length(const char *text, size_t size_bytes) {
    const char *end = memchr(text, '\n', size_bytes);
    return end != NULL ? (size_t)(end - text) : size_bytes;
}

static bool is_run_by_python(const char *text, size_t size_bytes) {
    return size_bytes > 2 && memcmp(text, "#!", 2) == 0 &&
           memmem(text, line_length(text, size_bytes), "python", strlen("python")) != NULL;
}

/* As PEP 263 has it: a comment in one of the first two lines, "coding" and then ':' or '='. */
static bool names_its_encoding(const char *text, size_t size_bytes) {
    for (int line = 0; line < 2 && size_bytes > 0; line++) {
        size_t length = line_length(text, size_bytes);
        size_t blank = 0;
        while (blank < length && (text[blank] == ' ' || text[blank] == '\t' || text[blank] == '\f'))
            blank++;
        const char *word = memmem(text, length, "coding", strlen("coding"));
        if (blank < length && text[blank] == '#' && word != NULL) {
            const char *after = word + strlen("coding");
            if (after < text + length && (*after == ':' || *after == '='))
                return true;
        }
        size_t skipped = length < size_bytes ? length + 1 : length;
        text += skipped;
        size_bytes -= skipped;
    }
    return false;
}

static bool is_utf8(const char *text, size_t size_bytes) {
    for (size_t at = 0; at < size_bytes;) {
        uint32_t character;
        size_t length = (unsigned char)text[at] < 0x80 ? 1 : text_decode_utf8(text + at, size_bytes - at, &character);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

bool python_source_is(const char *path, const struct stat *info, const char *text, size_t size_bytes) {
    return (is_named_python(path, info) || is_run_by_python(text, size_bytes)) &&
           memchr(text, '\0', size_bytes) == NULL &&
           (is_utf8(text, size_bytes) || names_its_encoding(text, size_bytes));
}
