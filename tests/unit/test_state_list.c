#include "cpython/state_list.h"

#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { THREADS = 5, INTERPS = 3 };

/* A process with interpreters and, in the oldest of them, threads; all lists newest first. */
struct subject {
    struct fake_target *target;
    struct memory memory; /* what the lists are read through */
    remote_addr runtime, interps[INTERPS], threads[THREADS];
    size_t reads;
    size_t changes_at; /* the read at which something happens; 0: never, or it has happened */
    void (*change)(struct subject *subject);
};

static struct subject *subject_of(struct memory *memory) {
    return (struct subject *)(void *)((char *)memory - offsetof(struct subject, memory));
}

static enum status read_and_change(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct subject *subject = subject_of(memory);
    if (++subject->reads == subject->changes_at) {
        subject->change(subject);
        subject->changes_at = 0;
    }
    return memory_read(&subject->target->memory, address, buffer, size_bytes);
}

static void put(struct subject *subject, remote_addr state, layout_offset field, uint64_t value) {
    fake_put_u64(subject->target, state + field, value);
}

static void link(struct subject *subject, remote_addr newer, remote_addr older) {
    const struct layout_thread *fields = &subject->target->runtime.layout.thread;
    put(subject, newer, fields->next, older);
    if (older != 0)
        put(subject, older, fields->prev, newer);
}

static void subject_init(struct subject *subject, int minor) {
    *subject = (struct subject){.target = fake_new(minor), .memory = {.read = read_and_change}};
    const struct layout *layout = &subject->target->runtime.layout;
    subject->runtime = fake_allocate(subject->target, 4096);
    subject->target->runtime.address = subject->runtime;
    subject->target->runtime.live = &subject->memory;
    for (size_t i = 0; i < INTERPS; i++)
        subject->interps[i] = fake_allocate(subject->target, 4096);
    for (size_t i = 0; i < INTERPS; i++)
        put(subject, subject->interps[i], layout->interp.next, i + 1 < INTERPS ? subject->interps[i + 1] : 0);
    put(subject, subject->runtime, layout->runtime.interpreters_head, subject->interps[0]);
    for (size_t i = 0; i < THREADS; i++) {
        subject->threads[i] = fake_allocate(subject->target, 512);
        put(subject, subject->threads[i], layout->thread.interp, subject->interps[INTERPS - 1]);
        if (i > 0)
            link(subject, subject->threads[i - 1], subject->threads[i]);
    }
    put(subject, subject->interps[INTERPS - 1], layout->interp.threads_head, subject->threads[0]);
}

static enum status read_threads(struct subject *subject, struct state_list *list) {
    return state_list_read_threads(&subject->target->runtime, subject->interps[INTERPS - 1], list);
}

static void test_lists_at_rest(void **state) {
    (void)state;
    for (int minor = 8; minor <= 12; minor++) {
        struct subject subject;
        struct state_list list = {0};
        subject_init(&subject, minor);
        assert_int_equal(read_threads(&subject, &list), STATUS_OK);
        assert_true(list.complete);
        assert_int_equal(list.count, THREADS);
        assert_memory_equal(list.items, subject.threads, sizeof subject.threads);
        assert_int_equal(state_list_read_interps(&subject.target->runtime, &list), STATUS_OK);
        assert_true(list.complete);
        assert_int_equal(list.count, INTERPS);
        assert_memory_equal(list.items, subject.interps, sizeof subject.interps);
        state_list_release(&list);
        free(subject.target);
    }
}

/* The third thread ends just before it is read, and its place is taken by what is no thread. */
static void end_third(struct subject *subject) {
    const struct layout_thread *fields = &subject->target->runtime.layout.thread;
    link(subject, subject->threads[1], subject->threads[3]);
    put(subject, subject->threads[2], fields->prev, 0x5a5a5a5a5a5a5a5a);
    put(subject, subject->threads[2], fields->next, 0x5a5a5a5a5a5a5a5a);
    put(subject, subject->threads[2], fields->interp, 0x5a5a5a5a5a5a5a5a);
}

/* The same, and a new thread begins in its place. */
static void replace_third(struct subject *subject) {
    end_third(subject);
    put(subject, subject->threads[2], subject->target->runtime.layout.thread.interp, subject->interps[INTERPS - 1]);
    put(subject, subject->threads[2], subject->target->runtime.layout.thread.prev, 0);
    link(subject, subject->threads[2], subject->threads[0]);
    put(subject, subject->interps[INTERPS - 1], subject->target->runtime.layout.interp.threads_head,
        subject->threads[2]);
}

static void test_a_thread_that_ends_meanwhile(void **state) {
    (void)state;
    struct subject subject;
    struct state_list list = {0};
    subject_init(&subject, 12);
    /* The head, and three reads for each of two threads, come before. */
    subject.changes_at = 1 + 3 * 2 + 1;
    subject.change = end_third;
    assert_int_equal(read_threads(&subject, &list), STATUS_OK);
    assert_int_equal(subject.changes_at, 0);
    assert_true(list.complete);
    assert_int_equal(list.count, THREADS - 1);
    assert_int_equal(list.items[THREADS - 2], subject.threads[THREADS - 1]);
    state_list_release(&list);
    free(subject.target);
}

static void test_a_thread_that_is_replaced_meanwhile(void **state) {
    (void)state;
    struct subject subject;
    struct state_list list = {0};
    subject_init(&subject, 12);
    subject.changes_at = 1 + 3 * 2 + 1;
    subject.change = replace_third;
    assert_int_equal(read_threads(&subject, &list), STATUS_OK);
    assert_true(list.complete);
    assert_int_equal(list.count, THREADS);
    assert_int_equal(list.items[0], subject.threads[2]);
    assert_int_equal(list.items[THREADS - 1], subject.threads[THREADS - 1]);
    state_list_release(&list);
    free(subject.target);
}

static void test_a_thread_that_has_ended(void **state) {
    (void)state;
    struct subject subject;
    subject_init(&subject, 12);
    struct runtime *runtime = &subject.target->runtime;
    for (size_t i = 0; i < THREADS; i++)
        assert_true(state_list_still_has_thread(runtime, subject.interps[INTERPS - 1], subject.threads[i]));
    link(&subject, subject.threads[1], subject.threads[3]);
    assert_false(state_list_still_has_thread(runtime, subject.interps[INTERPS - 1], subject.threads[2]));
    put(&subject, subject.threads[2], runtime->layout.thread.prev, 0x5a5a5a5a5a5a5a5a);
    assert_false(state_list_still_has_thread(runtime, subject.interps[INTERPS - 1], subject.threads[2]));
    put(&subject, subject.threads[2], runtime->layout.thread.prev, 0);
    assert_false(state_list_still_has_thread(runtime, subject.interps[INTERPS - 1], subject.threads[2]));
    free(subject.target);
}

/* A new thread begins while the newest so far is asked for: it is there, but not where it was. */
static void begin_another(struct subject *subject) {
    remote_addr another = fake_allocate(subject->target, 512);
    link(subject, another, subject->threads[0]);
    put(subject, subject->interps[INTERPS - 1], subject->target->runtime.layout.interp.threads_head, another);
}

static void test_a_thread_that_is_the_newest_no_more(void **state) {
    (void)state;
    struct subject subject;
    subject_init(&subject, 12);
    subject.changes_at = 2;
    subject.change = begin_another;
    assert_true(
        state_list_still_has_thread(&subject.target->runtime, subject.interps[INTERPS - 1], subject.threads[0]));
    assert_int_equal(subject.changes_at, 0);
    free(subject.target);
}

/* A process that was stopped while it took a thread out: the way back is not there, and will not be. */
static void test_a_list_that_stands_still_half_changed(void **state) {
    (void)state;
    struct subject subject;
    struct state_list list = {0};
    subject_init(&subject, 12);
    put(&subject, subject.threads[1], subject.target->runtime.layout.thread.next, subject.threads[3]);
    assert_int_equal(read_threads(&subject, &list), STATUS_OK);
    assert_true(list.complete);
    assert_int_equal(list.count, THREADS - 1);
    state_list_release(&list);
    free(subject.target);
}

/* What leads nowhere at each attempt says so, and what came before is there. */
static void test_lists_that_are_broken(void **state) {
    (void)state;
    struct subject subject;
    struct state_list list = {0};
    subject_init(&subject, 12);
    const struct layout *layout = &subject.target->runtime.layout;
    end_third(&subject);
    link(&subject, subject.threads[1], subject.threads[2]);
    assert_int_equal(read_threads(&subject, &list), STATUS_OK);
    assert_false(list.complete);
    assert_int_equal(list.count, 2);
    put(&subject, subject.threads[1], layout->thread.next, subject.threads[0]);
    assert_int_equal(read_threads(&subject, &list), STATUS_OK);
    assert_false(list.complete);
    assert_in_range(list.count, 2, 4);
    put(&subject, subject.interps[1], layout->interp.next, subject.interps[0]);
    assert_int_equal(state_list_read_interps(&subject.target->runtime, &list), STATUS_OK);
    assert_false(list.complete);
    assert_in_range(list.count, 2, 4);
    state_list_release(&list);
    free(subject.target);
}

/* The second interpreter is no more, and what stood there leads nowhere. */
static void end_second_interp(struct subject *subject) {
    const struct layout *layout = &subject->target->runtime.layout;
    put(subject, subject->interps[0], layout->interp.next, subject->interps[2]);
    put(subject, subject->interps[1], layout->interp.next, 0);
}

static void test_an_interpreter_that_ends_meanwhile(void **state) {
    (void)state;
    struct subject subject;
    struct state_list list = {0};
    subject_init(&subject, 12);
    subject.changes_at = 3;
    subject.change = end_second_interp;
    assert_int_equal(state_list_read_interps(&subject.target->runtime, &list), STATUS_OK);
    assert_true(list.complete);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.items[1], subject.interps[2]);
    state_list_release(&list);
    free(subject.target);
}

/* The newest thread ends while the runtime is looked at first. */
static void end_newest(struct subject *subject) {
    const struct layout *layout = &subject->target->runtime.layout;
    put(subject, subject->interps[INTERPS - 1], layout->interp.threads_head, subject->threads[1]);
    put(subject, subject->threads[0], layout->thread.interp, 0x5a5a5a5a5a5a5a5a);
}

static void test_a_runtime_whose_newest_thread_ends(void **state) {
    (void)state;
    struct subject subject;
    struct runtime opened;
    struct error error = {0};
    subject_init(&subject, 12);
    const uint32_t version = 0x030c01f0;
    struct runtime_symbols symbols = {.runtime = subject.runtime, .py_version = fake_allocate(subject.target, 8)};
    fake_put(subject.target, symbols.py_version, &version, sizeof version);
    put(&subject, subject.runtime, subject.target->runtime.layout.runtime.interpreters_head,
        subject.interps[INTERPS - 1]);
    /* The runtime's beginning, the version, the newest interpreter and its newest thread come before. */
    subject.changes_at = 5;
    subject.change = end_newest;
    assert_int_equal(runtime_open(&opened, &subject.memory, &subject.memory, &symbols, &error), STATUS_OK);
    assert_int_equal(subject.changes_at, 0);
    assert_false(opened.empty);
    free(subject.target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_at_rest),
        cmocka_unit_test(test_a_thread_that_ends_meanwhile),
        cmocka_unit_test(test_a_thread_that_is_replaced_meanwhile),
        cmocka_unit_test(test_a_thread_that_has_ended),
        cmocka_unit_test(test_a_thread_that_is_the_newest_no_more),
        cmocka_unit_test(test_a_list_that_stands_still_half_changed),
        cmocka_unit_test(test_lists_that_are_broken),
        cmocka_unit_test(test_an_interpreter_that_ends_meanwhile),
        cmocka_unit_test(test_a_runtime_whose_newest_thread_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
