/* Any text as a symbol's name: it is worked out in bounded time and space. The corpus has one of each kind, one that
 * would be 2^25 times as long, and one that nests as deeply as is allowed. */
#include "elf/symbol_name.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct symbol_names names = {0};
    char *name = malloc(size_bytes + 1);
    if (name == NULL)
        return 0;
    if (size_bytes > 0)
        memcpy(name, data, size_bytes);
    name[size_bytes] = '\0';
    for (int round = 0; round < 2; round++)
        if (strlen(symbol_names_plain(&names, name)) >= SYMBOL_NAME_MAX_BYTES)
            abort();
    symbol_names_release(&names);
    free(name);
    return 0;
}
