/* Prints the layout that strobe makes of a `_Py_DebugOffsets` in a file, or its table of a minor version, as JSON: for
 * tests that hold it against the headers.
 *
 *   print_layout FILE | print_layout MINOR INDEX */
#include "cpython/layout.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
    size_t size_bytes;
} fields[] = {
#include "layout_fields.inc"
};

static void print_field(size_t index, const struct layout *layout) {
    uint32_t value = 0;
    memcpy(&value, (const char *)layout + fields[index].offset, fields[index].size_bytes);
    bool absent = fields[index].size_bytes == sizeof value && value == OFFSET_NONE;
    printf("%s\n \"%s\": ", index == 0 ? "{" : ",", fields[index].name);
    if (absent)
        printf("null");
    else
        printf("%u", value);
}

static int print_layout(const struct layout *layout) {
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        print_field(i, layout);
    printf("\n}\n");
    return 0;
}

static int print_table(int minor, int index) {
    size_t count = 0;
    const struct layout *tables = layout_tables(&count);
    for (size_t i = 0; i < count; i++) {
        if (layout_minor(&tables[i]) == minor && index-- == 0)
            return print_layout(&tables[i]);
    }
    return 1;
}

static int print_file(const char *path) {
    unsigned char bytes[DEBUG_OFFSETS_MAX_BYTES];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 1;
    size_t size = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    struct layout layout;
    struct error error = {0};
    if (debug_offsets_decode(bytes, size, &layout, &error) != STATUS_OK) {
        (void)fprintf(stderr, "print_layout: %s\n", error.text);
        return 2;
    }
    return print_layout(&layout);
}

int main(int count, char **arguments) {
    if (count == 3)
        return print_table(atoi(arguments[1]), atoi(arguments[2]));
    return count == 2 ? print_file(arguments[1]) : 1;
}
