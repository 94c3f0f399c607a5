/* Which characters repr() shows as they are. */
#ifndef STROBE_CPYTHON_PRINTABLE_H
#define STROBE_CPYTHON_PRINTABLE_H

#include <stdbool.h>
#include <stdint.h>

/* As str.isprintable() has it for one character, by the Unicode of the newest Python that strobe knows. */
bool character_is_printable(uint32_t character);

#endif
