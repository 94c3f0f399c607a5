/* The live set and the high-water mark, held against a model that keeps all and sorts nothing out. */
#include "sampler/agent_heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PATHS = 5, IDS = 400, EVENTS = 3000, UNIT = 1024 };

/* What is live of each block, by path, as plainly as can be; and all of it copied at each new maximum. */
struct model {
    uint64_t bytes[IDS][PATHS];
    uint64_t size[IDS];
    uint64_t live[PATHS], peak[PATHS];
    uint64_t peak_bytes;
    size_t ids; /* that there may be */
};

static void model_note(struct model *model, const struct agent_heap_event *event) {
    if (event->footprint_bytes < model->peak_bytes || event->footprint_bytes == 0 ||
        (event->kind == AGENT_HEAP_FOOTPRINT && event->footprint_bytes == model->peak_bytes))
        return;
    model->peak_bytes = event->footprint_bytes;
    memcpy(model->peak, model->live, sizeof model->peak);
}

static void model_recount(struct model *model) {
    memset(model->live, 0, sizeof model->live);
    for (size_t i = 0; i < model->ids; i++)
        for (size_t p = 0; p < PATHS; p++)
            model->live[p] += model->bytes[i][p];
}

static void model_clear(struct model *model, size_t ids) {
    memset(model->bytes, 0, ids * sizeof model->bytes[0]);
    memset(model->size, 0, ids * sizeof model->size[0]);
    memset(model->live, 0, sizeof model->live);
    memset(model->peak, 0, sizeof model->peak);
    model->peak_bytes = 0;
    model->ids = ids;
}

static void model_take(struct model *model, const struct agent_heap_event *event) {
    if (event->kind == AGENT_HEAP_ALLOC) {
        model->bytes[event->id][event->path] += event->bytes;
        model->size[event->id] = event->size_bytes;
        model_recount(model);
    }
    model_note(model, event);
    if (event->kind == AGENT_HEAP_FREE)
        memset(model->bytes[event->id], 0, sizeof model->bytes[event->id]);
    if (event->kind == AGENT_HEAP_RESIZE && model->size[event->id] > event->size_bytes) {
        for (size_t p = 0; p < PATHS; p++)
            model->bytes[event->id][p] = model->bytes[event->id][p] * event->size_bytes / model->size[event->id];
        model->size[event->id] = event->size_bytes;
    }
    model_recount(model);
}

static void assert_same(const struct agent_heap *heap, const struct model *model) {
    uint64_t live[PATHS] = {0}, peak[PATHS] = {0};
    for (size_t i = 0; i < heap->site_count; i++) {
        struct sample_held held = agent_heap_held(heap, &heap->sites[i]);
        live[heap->sites[i].path] = held.live_bytes;
        peak[heap->sites[i].path] = held.peak_bytes;
    }
    assert_memory_equal(live, model->live, sizeof live);
    assert_memory_equal(peak, model->peak, sizeof peak);
}

/* xorshift64 */
static uint64_t next_random(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* Powers of two shrink without a rest, so that the model needs no rounding of its own. */
static struct agent_heap_event make_event(uint64_t *random, struct model *model, uint64_t *last_id, uint64_t step) {
    struct agent_heap_event event = {
        .time_ns = step, .kind = (uint16_t)(next_random(random) % 4), .footprint_bytes = next_random(random) % 2048};
    event.id = *last_id > 1 ? 1 + next_random(random) % (*last_id - 1) : 0;
    event.path = (uint32_t)(next_random(random) % PATHS);
    if (event.kind == AGENT_HEAP_ALLOC || event.id == 0) {
        bool grows = event.id != 0 && model->size[event.id] > 0 && model->size[event.id] < 1 << 20 &&
                     next_random(random) % 3 == 0;
        event.kind = AGENT_HEAP_ALLOC;
        if (!grows)
            event.id = (*last_id)++;
        event.size_bytes = grows ? model->size[event.id] * 2 : UINT64_C(1) << next_random(random) % 10 << 10;
        event.bytes = event.size_bytes << 4;
        event.count = grows ? 0 : UNIT;
    }
    if (event.kind == AGENT_HEAP_RESIZE)
        event.size_bytes = model->size[event.id] / 2 > 8 ? model->size[event.id] / 2 : model->size[event.id];
    if (event.kind == AGENT_HEAP_FREE)
        model->size[event.id] = 0;
    return event;
}

static void test_random_histories(void **state) {
    (void)state;
    static struct agent_heap heap;
    static struct model model;
    for (uint64_t round = 1; round <= 60; round++) {
        uint64_t random = round * 88172645463325252u, last_id = 1;
        memset(&heap, 0, sizeof heap);
        model_clear(&model, IDS);
        for (uint64_t step = 0; step < EVENTS && last_id < IDS; step++) {
            struct agent_heap_event event = make_event(&random, &model, &last_id, step);
            assert_int_equal(agent_heap_take(&heap, &event), STATUS_OK);
            model_take(&model, &event);
            if (step % 7 == 0)
                assert_same(&heap, &model);
        }
        assert_same(&heap, &model);
        agent_heap_release(&heap);
    }
}

/* All histories of four events on two blocks and two paths, with two footprints. */
static void test_all_short_histories(void **state) {
    (void)state;
    static struct agent_heap heap;
    static struct model model;
    enum { CHOICES = 4 * 2 * 2 * 2, LENGTH = 4 };
    uint64_t total = 1;
    for (int i = 0; i < LENGTH; i++)
        total *= CHOICES;
    for (uint64_t history = 0; history < total; history++) {
        bool freed[3] = {false};
        model_clear(&model, 3);
        memset(&heap, 0, offsetof(struct agent_heap, strays));
        heap.strays[1] = heap.strays[2] = 0;
        uint64_t rest = history;
        for (uint64_t step = 0; step < LENGTH; step++, rest /= CHOICES) {
            uint32_t choice = (uint32_t)(rest % CHOICES);
            struct agent_heap_event event = {.time_ns = step,
                                             .kind = (uint16_t)(choice % 4),
                                             .id = 1 + choice / 4 % 2,
                                             .path = choice / 8 % 2,
                                             .footprint_bytes = 10 * (1 + choice / 16 % 2)};
            event.size_bytes = event.kind == AGENT_HEAP_ALLOC ? model.size[event.id] + 1024 : 512;
            event.bytes = 4096;
            /* Ids are not used again: what comes of one that was freed came late. */
            if (event.kind == AGENT_HEAP_ALLOC && freed[event.id])
                event.bytes = 0;
            freed[event.id] |= event.kind == AGENT_HEAP_FREE;
            assert_int_equal(agent_heap_take(&heap, &event), STATUS_OK);
            model_take(&model, &event);
            if (event.kind == AGENT_HEAP_FREE)
                model.size[event.id] = 0;
        }
        for (size_t i = 0; i < heap.site_count; i++) {
            struct sample_held held = agent_heap_held(&heap, &heap.sites[i]);
            assert_true(held.live_bytes <= model.live[heap.sites[i].path] + 2);
            assert_true(held.live_bytes + 2 >= model.live[heap.sites[i].path]);
            assert_true(held.peak_bytes <= model.peak[heap.sites[i].path] + 2);
            assert_true(held.peak_bytes + 2 >= model.peak[heap.sites[i].path]);
        }
        agent_heap_release(&heap);
    }
}

static struct sample_held held_by(const struct agent_heap *heap, uint32_t path) {
    for (size_t i = 0; i < heap->site_count; i++)
        if (heap->sites[i].path == path)
            return agent_heap_held(heap, &heap->sites[i]);
    return (struct sample_held){0};
}

/* strobe looks at a process that grows, and hears of what made it grow later. */
static void test_a_look_is_no_maximum(void **state) {
    (void)state;
    static struct agent_heap heap;
    const struct agent_heap_event events[] = {
        {.kind = AGENT_HEAP_ALLOC,
         .id = 1,
         .time_ns = 1,
         .bytes = 10,
         .size_bytes = 10,
         .path = 1,
         .footprint_bytes = 10},
        {.kind = AGENT_HEAP_LOOK, .time_ns = 2, .footprint_bytes = 100},
        {.kind = AGENT_HEAP_ALLOC,
         .id = 2,
         .time_ns = 3,
         .bytes = 80,
         .size_bytes = 80,
         .path = 1,
         .footprint_bytes = 90},
        {.kind = AGENT_HEAP_FOOTPRINT, .time_ns = 4, .footprint_bytes = 100},
        {.kind = AGENT_HEAP_ALLOC,
         .id = 3,
         .time_ns = 5,
         .bytes = 5,
         .size_bytes = 5,
         .path = 1,
         .footprint_bytes = 95},
    };
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        assert_int_equal(agent_heap_take(&heap, &events[i]), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).peak_bytes, 90);
    /* What comes late was there. */
    const struct agent_heap_event late = {
        .kind = AGENT_HEAP_ALLOC, .id = 4, .time_ns = 2, .bytes = 7, .size_bytes = 7, .path = 1, .footprint_bytes = 17};
    assert_int_equal(agent_heap_take(&heap, &late), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).peak_bytes, 97);
    agent_heap_release(&heap);
}

/* Its free is read before it: it was told by another thread. */
static void test_what_comes_late_is_not_live(void **state) {
    (void)state;
    static struct agent_heap heap;
    const struct agent_heap_event events[] = {
        {.kind = AGENT_HEAP_FREE, .id = 9, .time_ns = 5},
        {.kind = AGENT_HEAP_ALLOC, .id = 9, .time_ns = 4, .bytes = 100, .size_bytes = 100, .path = 1},
        {.kind = AGENT_HEAP_ALLOC, .id = 10, .time_ns = 6, .bytes = 70, .size_bytes = 70, .path = 1},
    };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(agent_heap_take(&heap, &events[i]), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).live_bytes, 70);
    agent_heap_release(&heap);
}

static void test_what_is_needed_for_a_moment(void **state) {
    (void)state;
    static struct agent_heap heap;
    const struct agent_heap_event events[] = {
        {.kind = AGENT_HEAP_ALLOC, .id = 1, .bytes = 100, .path = 1, .thread = 7, .allocated_bytes = 500},
        {.kind = AGENT_HEAP_FREE, .id = 1, .thread = 7, .allocated_bytes = 500},
        {.kind = AGENT_HEAP_ALLOC, .id = 2, .bytes = 30, .path = 1, .thread = 7, .allocated_bytes = 530},
        {.kind = AGENT_HEAP_FREE, .id = 2, .thread = 7, .allocated_bytes = 531},
        {.kind = AGENT_HEAP_ALLOC, .id = 3, .bytes = 5, .path = 1, .thread = 7, .allocated_bytes = 540},
        {.kind = AGENT_HEAP_FREE, .id = 3, .thread = 8, .allocated_bytes = 540},
    };
    memset(&heap, 0, sizeof heap);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        assert_int_equal(agent_heap_take(&heap, &events[i]), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).temporary_bytes, 100);
    assert_int_equal(held_by(&heap, 1).live_bytes, 0);
    agent_heap_release(&heap);
}

/* The interpreter gives back what the program has kept; what it allocates for that is none of the program's. */
static void test_what_is_kept_to_the_end(void **state) {
    (void)state;
    static struct agent_heap heap;
    const struct agent_heap_event events[] = {
        {.kind = AGENT_HEAP_ALLOC, .id = 1, .bytes = 100, .size_bytes = 100, .path = 1, .footprint_bytes = 100},
        {.kind = AGENT_HEAP_ALLOC, .id = 2, .bytes = 30, .size_bytes = 30, .path = 1, .footprint_bytes = 130},
        {.kind = AGENT_HEAP_FREE, .id = 2, .footprint_bytes = 130},
        {.kind = AGENT_HEAP_ALLOC, .id = 3, .bytes = 50, .path = 2, .footprint_bytes = 150, .is_final = true},
        {.kind = AGENT_HEAP_RESIZE, .id = 1, .size_bytes = 10, .is_final = true},
        {.kind = AGENT_HEAP_FREE, .id = 1, .is_final = true},
        {.kind = AGENT_HEAP_FREE, .id = 3, .is_final = true},
    };
    memset(&heap, 0, sizeof heap);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        assert_int_equal(agent_heap_take(&heap, &events[i]), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).live_bytes, 100);
    assert_int_equal(held_by(&heap, 1).peak_bytes, 100);
    assert_int_equal(held_by(&heap, 2).live_bytes, 0);
    assert_int_equal(held_by(&heap, 2).peak_bytes, 50);
    /* Pages that were touched before are noticed late. */
    const struct agent_heap_event late = {.kind = AGENT_HEAP_FOOTPRINT, .footprint_bytes = 300, .is_final = true};
    assert_int_equal(agent_heap_take(&heap, &late), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).peak_bytes, 100);
    assert_int_equal(held_by(&heap, 2).peak_bytes, 0);
    /* It is started anew. */
    const struct agent_heap_event again = {
        .kind = AGENT_HEAP_ALLOC, .id = 4, .bytes = 7, .path = 2, .has_program = true};
    assert_int_equal(agent_heap_take(&heap, &again), STATUS_OK);
    assert_int_equal(held_by(&heap, 1).live_bytes, 0);
    assert_int_equal(held_by(&heap, 2).live_bytes, 7);
    agent_heap_release(&heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_all_short_histories),
        cmocka_unit_test(test_a_look_is_no_maximum),
        cmocka_unit_test(test_what_comes_late_is_not_live),
        cmocka_unit_test(test_what_is_needed_for_a_moment),
        cmocka_unit_test(test_what_is_kept_to_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
