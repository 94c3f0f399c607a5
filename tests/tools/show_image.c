/* Prints what strobe says of a recorded image: show_image IMAGE */
#include "traverse.h"

#include <stdio.h>

enum { TEXT_LIMIT_BYTES = 64 << 20 };

static enum status read_file(const char *path, struct buffer *content) {
    char bytes[4096];
    size_t size_bytes = 0;
    enum status status = STATUS_OK;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return STATUS_FAILED;
    while (status == STATUS_OK && (size_bytes = fread(bytes, 1, sizeof bytes, file)) > 0)
        status = buffer_append(content, bytes, size_bytes);
    (void)fclose(file);
    return status;
}

int main(int argc, char **argv) {
    struct memory_image image = {0};
    struct buffer content, text;
    buffer_init(&content, MEMORY_IMAGE_MAX_BYTES);
    buffer_init(&text, TEXT_LIMIT_BYTES);
    enum status status = argc == 2 ? read_file(argv[1], &content) : STATUS_USAGE;
    if (status == STATUS_OK)
        status = memory_image_open(&image, (uint8_t *)content.data, content.size_bytes);
    if (status == STATUS_OK) {
        struct traverse_start start = traverse_noted_start(image.notes);
        status = traverse(&image.memory, &start, TRAVERSE_LOCALS_CHARS, NULL, &text);
    }
    if (status == STATUS_OK)
        (void)fwrite(text.data, 1, text.size_bytes, stdout);
    else
        (void)fprintf(stderr, "show_image: %s\n", status_name(status));
    memory_image_release(&image);
    buffer_release(&text);
    buffer_release(&content);
    return status != STATUS_OK;
}
