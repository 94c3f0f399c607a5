#include "base/message.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char GAP[] = "…";

/* Neither side of the gap ends within a character. */
static bool is_within_character(const char *at) {
    return ((unsigned char)*at & 0xc0) == 0x80;
}

static void join_ends(char *text, size_t size_bytes, const char *whole, size_t length) {
    enum { LONGEST = 4 };
    size_t gap = sizeof GAP - 1;
    if (size_bytes <= gap + 2 * LONGEST)
        return;
    size_t head = (size_bytes - 1 - gap) / 2, tail = length - (size_bytes - 1 - gap - head);
    for (int i = 1; i < LONGEST && is_within_character(whole + head); i++)
        head--;
    for (int i = 1; i < LONGEST && is_within_character(whole + tail); i++)
        tail++;
    memcpy(text, whole, head);
    memcpy(text + head, GAP, gap);
    memcpy(text + head + gap, whole + tail, length - tail + 1);
}

void message_format(char *text, size_t size_bytes, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(text, size_bytes, format, arguments);
    if (length >= 0 && (size_t)length >= size_bytes) {
        /* Without memory its beginning is what there is. The agent's messages are never as long as that. */
        char *whole = malloc((size_t)length + 1);
        /* clang-tidy 14 does not see va_copy. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
        if (whole != NULL && vsnprintf(whole, (size_t)length + 1, format, again) == length)
            join_ends(text, size_bytes, whole, (size_t)length);
        free(whole);
    }
    va_end(again);
}
