/* Messages that fit their room. */
#ifndef STROBE_BASE_MESSAGE_H
#define STROBE_BASE_MESSAGE_H

#include <stdarg.h>
#include <stddef.h>

/* Formats into `text`. What does not fit is left out of the middle, where "…" stands for it: a message begins with what
 * it is about and ends with why and what to do; what is long is the path or the command in between. */
void message_format(char *text, size_t size_bytes, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
