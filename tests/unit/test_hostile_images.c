/* Recorded images in which something was falsified on purpose: a look ends within its budget, and what was not touched
 * is still there. */
#include "base/bytes.h"
#include "cpython/frame.h"
#include "cpython/interp.h"
#include "cpython/locals.h"
#include "traverse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FILE_LIMIT_BYTES = 4 << 20, TEXT_LIMIT_BYTES = 16 << 20, READS_MAX = 200000, READ_BYTES_MAX = 32 << 20 };

static const char *const names[] = {"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15"};
enum { NAMES = sizeof names / sizeof names[0] };

/* One image, opened, with its first interpreter and that one's newest thread. */
struct subject {
    struct buffer file;
    struct memory_image image;
    struct traverse_start start;
    struct runtime runtime;
    struct interp interp;
    struct thread_state thread;
    struct buffer text;
    struct budget budget;
};

static void read_file(const char *name, struct buffer *content) {
    char path[4096];
    char bytes[4096];
    size_t size_bytes = 0;
    (void)snprintf(path, sizeof path, "%s/%s.image", IMAGE_FOLDER, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    buffer_init(content, FILE_LIMIT_BYTES);
    while ((size_bytes = fread(bytes, 1, sizeof bytes, file)) > 0)
        assert_int_equal(buffer_append(content, bytes, size_bytes), STATUS_OK);
    (void)fclose(file);
}

static void subject_init(struct subject *subject, const char *name) {
    struct error error = {0};
    remote_addr address = 0;
    *subject = (struct subject){.budget = {.reads_left = READS_MAX, .bytes_left = READ_BYTES_MAX}};
    read_file(name, &subject->file);
    buffer_init(&subject->text, TEXT_LIMIT_BYTES);
    assert_int_equal(memory_image_open(&subject->image, (uint8_t *)subject->file.data, subject->file.size_bytes),
                     STATUS_OK);
    subject->start = traverse_noted_start(subject->image.notes);
    struct memory *memory = &subject->image.memory;
    assert_int_equal(runtime_open(&subject->runtime, memory, memory, &subject->start.symbols, &error), STATUS_OK);
    assert_int_equal(interp_first(&subject->runtime, &address), STATUS_OK);
    assert_int_equal(interp_read(&subject->runtime, address, &subject->interp), STATUS_OK);
    assert_int_equal(thread_state_read(&subject->runtime, subject->interp.threads_head, &subject->thread), STATUS_OK);
}

static void subject_release(struct subject *subject) {
    memory_image_release(&subject->image);
    buffer_release(&subject->text);
    buffer_release(&subject->file);
}

static void look(struct subject *subject) {
    assert_int_equal(
        traverse(&subject->image.memory, &subject->start, TRAVERSE_LOCALS_CHARS, &subject->budget, &subject->text),
        STATUS_OK);
}

/* The bytes of the image that stand for an address of the target. */
static uint8_t *bytes_at(struct subject *subject, remote_addr address) {
    for (size_t i = 0; i < subject->image.region_count; i++) {
        const struct memory_region *region = &subject->image.regions[i];
        if (address >= region->address && address - region->address < region->size_bytes)
            return region->bytes + (address - region->address);
    }
    fail_msg("0x%llx is not in the image", (unsigned long long)address);
    return NULL;
}

static uint64_t get_u64(struct subject *subject, remote_addr address) {
    return load_u64(bytes_at(subject, address));
}

static void put_u64(struct subject *subject, remote_addr address, uint64_t value) {
    memcpy(bytes_at(subject, address), &value, sizeof value);
}

static size_t count(const struct subject *subject, const char *sought) {
    size_t found = 0;
    for (const char *at = buffer_text(&subject->text); (at = strstr(at, sought)) != NULL; at++)
        found++;
    return found;
}

static remote_addr code_of_innermost(struct subject *subject) {
    const struct layout *layout = &subject->runtime.layout;
    bool linked = layout_has(layout->thread.frame);
    layout_offset field = linked ? layout->frame_object.f_code : layout->frame.f_executable;
    return frame_untag(layout, get_u64(subject, subject->thread.frame + field));
}

static remote_addr previous_slot(const struct subject *subject, remote_addr frame) {
    const struct layout *layout = &subject->runtime.layout;
    return frame + (layout_has(layout->thread.frame) ? layout->frame_object.f_back : layout->frame.previous);
}

/* The images of versions whose tasks strobe can tell have a thread more. */
static size_t thread_count(const struct subject *subject) {
    return layout_minor(&subject->runtime.layout) >= 14 ? 7 : 6;
}

/* Each test is run once for each image. */
typedef void falsify_fn(struct subject *subject);

static void for_each_image(falsify_fn *test) {
    for (size_t i = 0; i < NAMES; i++) {
        struct subject subject;
        subject_init(&subject, names[i]);
        test(&subject);
        subject_release(&subject);
    }
}

static void bite_threads(struct subject *subject) {
    put_u64(subject, subject->thread.address + subject->runtime.layout.thread.next, subject->thread.address);
    look(subject);
    assert_int_equal(count(subject, "\n  thread "), 1);
    assert_int_equal(count(subject, "function=wide "), 13);
}

/* The state of a thread that has not begun has the ids of the thread that makes it, or none; and no frame, or the one
 * that each state has (3.15). */
static void look_at_unborn(struct subject *subject, uint64_t thread_id) {
    const struct layout_thread *fields = &subject->runtime.layout.thread;
    remote_addr base_frame =
        layout_has(fields->base_frame) ? get_u64(subject, subject->thread.address + fields->base_frame) : 0;
    put_u64(subject, subject->thread.frame_slot, thread_id == 0 ? base_frame : 0);
    put_u64(subject, subject->thread.address + fields->thread_id, thread_id);
    look(subject);
    assert_int_equal(count(subject, "\n  thread "), thread_count(subject) - 1);
}

static void copy_ids(struct subject *subject) {
    look_at_unborn(subject, get_u64(subject, subject->thread.next + subject->runtime.layout.thread.thread_id));
}

static void clear_ids(struct subject *subject) {
    look_at_unborn(subject, 0);
}

static enum status count_local(void *context, const char *name, remote_addr value, bool argument) {
    (void)name, (void)value, (void)argument;
    ++*(size_t *)context;
    return STATUS_OK;
}

/* By the time that its variables are read, another frame may be where one was found. */
static void replace_frame(struct subject *subject) {
    struct memory *memory = &subject->image.memory;
    struct code_cache codes;
    const struct code *code = NULL;
    size_t seen = 0;
    code_cache_init(&codes, &subject->runtime);
    assert_int_equal(code_cache_get(&codes, code_of_innermost(subject), &code), STATUS_OK);
    struct frame frame = {.address = subject->thread.frame, .code = code->address};
    assert_int_equal(locals_visit(&subject->runtime, memory, &frame, code, count_local, &seen), STATUS_OK);
    assert_true(seen > 0);
    seen = 0;
    frame.code += 64;
    assert_int_equal(locals_visit(&subject->runtime, memory, &frame, code, count_local, &seen), STATUS_TORN);
    assert_int_equal(seen, 0);
    code_cache_release(&codes);
}

static void bite_interpreters(struct subject *subject) {
    put_u64(subject, subject->interp.address + subject->runtime.layout.interp.next, subject->interp.address);
    look(subject);
    assert_int_equal(count(subject, "\ninterpreter "), 1);
    assert_int_equal(count(subject, "\n  thread "), thread_count(subject));
}

/* The caller's caller is the innermost frame. */
static void bite_frames(struct subject *subject) {
    remote_addr caller = get_u64(subject, previous_slot(subject, subject->thread.frame));
    put_u64(subject, previous_slot(subject, caller), subject->thread.frame);
    look(subject);
    assert_int_equal(count(subject, "\n  thread "), thread_count(subject));
    assert_int_equal(count(subject, "frame: inconsistent\n"), 1);
    assert_int_equal(count(subject, " inconsistent name="), 1);
    assert_true(count(subject, "function=wide ") < 8);
    assert_int_equal(count(subject, "function=containers "), 1);
}

/* The outermost frame's caller is the innermost. */
static void bite_late(struct subject *subject) {
    remote_addr frame = subject->thread.frame;
    for (remote_addr next = frame; next != 0; next = get_u64(subject, previous_slot(subject, frame)))
        frame = next;
    put_u64(subject, previous_slot(subject, frame), subject->thread.frame);
    look(subject);
    assert_int_equal(count(subject, "frame: inconsistent\n"), 1);
    assert_true(count(subject, "function=wide ") < 4 * 13);
}

static void lengthen_name(struct subject *subject) {
    const struct layout *layout = &subject->runtime.layout;
    remote_addr name = get_u64(subject, code_of_innermost(subject) + layout->code.co_name);
    put_u64(subject, name + layout->unicode.length, UINT64_C(1) << 40);
    look(subject);
    assert_int_equal(count(subject, "\n  thread "), thread_count(subject));
    assert_int_equal(count(subject, "frame: unreadable\n"), 13);
    assert_int_equal(count(subject, "function=run "), thread_count(subject) - 1);
}

static void lengthen_linetable(struct subject *subject) {
    const struct layout *layout = &subject->runtime.layout;
    remote_addr table = get_u64(subject, code_of_innermost(subject) + layout->code.co_linetable);
    put_u64(subject, table + layout->object.ob_size, 1 << 16);
    look(subject);
    assert_int_equal(count(subject, "\n  thread "), thread_count(subject));
    assert_int_equal(count(subject, "frame: unreadable\n"), 13);
}

/* The table of 3.13 and later may say that PyCodeObject is large and its fields far from its beginning. */
static void spread_code(struct subject *subject) {
    const uint32_t size_bytes = subject->runtime.layout.code.size;
    if (layout_minor(&subject->runtime.layout) < 13)
        return;
    for (remote_addr at = subject->start.symbols.runtime + 24; at < subject->start.symbols.runtime + 584; at += 8)
        if (get_u64(subject, at) == size_bytes &&
            get_u64(subject, at + 8) == subject->runtime.layout.code.co_filename) {
            put_u64(subject, at, 32768);
            put_u64(subject, at + 8, 32000);
        }
    look(subject);
    assert_int_equal(count(subject, "function="), 0);
    assert_true(count(subject, "frame: limit reached\n") > 20);
}

/* The same of frames, which are decoded from copies of their heads. */
static void spread_frame(struct subject *subject) {
    const struct layout_frame *frame = &subject->runtime.layout.frame;
    if (layout_minor(&subject->runtime.layout) < 13)
        return;
    for (remote_addr at = subject->start.symbols.runtime + 24; at < subject->start.symbols.runtime + 576; at += 8)
        if (get_u64(subject, at) == frame->size && get_u64(subject, at + 8) == frame->previous &&
            get_u64(subject, at + 16) == frame->f_executable) {
            put_u64(subject, at, 32768);
            put_u64(subject, at + 16, 32000);
        }
    look(subject);
    assert_int_equal(count(subject, "not Python: its debug offsets contradict themselves"), 1);
}

/* However little may be spent, the look ends and says what it lacks. */
static void spend_little(struct subject *subject) {
    look(subject);
    uint64_t needed = READS_MAX - subject->budget.reads_left;
    assert_false(subject->budget.exhausted);
    for (uint64_t reads = 0; reads < needed; reads += needed / 50 + 1) {
        subject->budget = (struct budget){.reads_left = reads, .bytes_left = READ_BYTES_MAX};
        buffer_clear(&subject->text);
        look(subject);
        assert_true(subject->budget.exhausted || count(subject, "locals: limit reached\n") > 0);
        assert_true(!subject->budget.exhausted || count(subject, "\nexhausted\n") == 1 ||
                    count(subject, "not Python") == 1);
    }
}

static void test_threads_that_bite_their_tail(void **state) {
    (void)state;
    for_each_image(bite_threads);
}

static void test_threads_that_have_not_begun(void **state) {
    (void)state;
    for_each_image(copy_ids);
    for_each_image(clear_ids);
}

static void test_variables_of_a_frame_that_is_another(void **state) {
    (void)state;
    for_each_image(replace_frame);
}

static void test_interpreters_that_bite_their_tail(void **state) {
    (void)state;
    for_each_image(bite_interpreters);
}

static void test_frames_that_bite_their_tail(void **state) {
    (void)state;
    for_each_image(bite_frames);
    for_each_image(bite_late);
}

static void test_names_without_end(void **state) {
    (void)state;
    for_each_image(lengthen_name);
}

static void test_line_tables_without_end(void **state) {
    (void)state;
    for_each_image(lengthen_linetable);
}

static void test_code_objects_of_any_size(void **state) {
    (void)state;
    for_each_image(spread_code);
}

static void test_frames_of_any_size(void **state) {
    (void)state;
    for_each_image(spread_frame);
}

static void test_small_budgets(void **state) {
    (void)state;
    for_each_image(spend_little);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_that_have_not_begun),
        cmocka_unit_test(test_variables_of_a_frame_that_is_another),
        cmocka_unit_test(test_threads_that_bite_their_tail),
        cmocka_unit_test(test_interpreters_that_bite_their_tail),
        cmocka_unit_test(test_frames_that_bite_their_tail),
        cmocka_unit_test(test_names_without_end),
        cmocka_unit_test(test_line_tables_without_end),
        cmocka_unit_test(test_code_objects_of_any_size),
        cmocka_unit_test(test_frames_of_any_size),
        cmocka_unit_test(test_small_budgets),
    };
    return cmocka_run_group_tests_name("hostile_images", tests, NULL, NULL);
}
