/* The recorded images of tests/golden/images: what is said of each is what was said when it was recorded, on an
 * interpreter that agreed. So the decoder of every version is tested on machines that lack it. */
#include "traverse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FILE_LIMIT_BYTES = 4 << 20, TEXT_LIMIT_BYTES = 16 << 20, READS_MAX = 100000, READ_BYTES_MAX = 16 << 20 };

static void read_file(const char *name, const char *ending, struct buffer *content) {
    char path[4096];
    char bytes[4096];
    size_t size_bytes = 0;
    (void)snprintf(path, sizeof path, "%s/%s.%s", IMAGE_FOLDER, name, ending);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    buffer_init(content, FILE_LIMIT_BYTES);
    while ((size_bytes = fread(bytes, 1, sizeof bytes, file)) > 0)
        assert_int_equal(buffer_append(content, bytes, size_bytes), STATUS_OK);
    (void)fclose(file);
}

/* Says at which line two texts part. */
static void assert_same_text(const char *said, const char *expected) {
    int line = 1;
    size_t at = 0;
    while (said[at] == expected[at] && said[at] != '\0') {
        line += said[at] == '\n';
        at++;
    }
    if (said[at] != expected[at])
        fail_msg("line %d: ...%.200s\nand not ...%.200s", line, said + at, expected + at);
}

static void test_image(void **state) {
    const char *name = *state;
    struct budget budget = {.reads_left = READS_MAX, .bytes_left = READ_BYTES_MAX};
    struct memory_image image;
    struct buffer file, expected, text;
    read_file(name, "image", &file);
    read_file(name, "txt", &expected);
    buffer_init(&text, TEXT_LIMIT_BYTES);
    assert_int_equal(memory_image_open(&image, (uint8_t *)file.data, file.size_bytes), STATUS_OK);
    struct traverse_start start = traverse_noted_start(image.notes);
    assert_int_equal(traverse(&image.memory, &start, TRAVERSE_LOCALS_CHARS, &budget, &text), STATUS_OK);
    assert_same_text(buffer_text(&text), buffer_text(&expected));
    memory_image_release(&image);
    buffer_release(&text);
    buffer_release(&expected);
    buffer_release(&file);
}

int main(void) {
    static char *names[] = {"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15"};
    enum { COUNT = sizeof names / sizeof names[0] };
    struct CMUnitTest tests[COUNT] = {{0}};
    for (size_t i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = test_image, .initial_state = names[i]};
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
