#include "agent/sampled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka.h needs those four before it
#include <cmocka.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- All that can be done with a table of eight places and four addresses. --- */

enum { CAPACITY = 8, KEYS = 4, DEPTH = 7, MAX_BLOCKS = CAPACITY - 1 };

/* What the table has to agree with: the blocks in the order in which they came. */
struct model {
    struct sampled blocks[DEPTH + 1];
    size_t count;
};

struct trial {
    struct sampled places[CAPACITY];
    struct model model;
    uint64_t keys[KEYS];
    uint64_t last_id;
};

static uint64_t address_with_home(size_t home, uint64_t after) {
    uint64_t address = after + 16;
    while (sampled_table_home(address, CAPACITY) != home)
        address += 16;
    return address;
}

static bool model_remove(struct model *model, uint64_t address, struct sampled *block) {
    for (size_t i = 0; i < model->count; i++) {
        if (model->blocks[i].address != address)
            continue;
        *block = model->blocks[i];
        memmove(&model->blocks[i], &model->blocks[i + 1], (--model->count - i) * sizeof *block);
        return true;
    }
    return false;
}

static struct sampled_table table_of(struct trial *trial) {
    return (struct sampled_table){trial->places, CAPACITY, trial->model.count};
}

/* Every block is found from its home on without meeting a free place, in the order in which equals came. */
static void assert_as_model(const struct trial *trial) {
    size_t taken = 0;
    for (size_t i = 0; i < CAPACITY; i++)
        taken += trial->places[i].address != 0;
    assert_int_equal(taken, trial->model.count);
    for (size_t i = 0; i < trial->model.count; i++) {
        const struct sampled *block = &trial->model.blocks[i];
        size_t equals_before = 0;
        for (size_t j = 0; j < i; j++)
            equals_before += trial->model.blocks[j].address == block->address;
        size_t place = sampled_table_home(block->address, CAPACITY);
        for (;; place = (place + 1) % CAPACITY) {
            assert_true(trial->places[place].address != 0);
            if (trial->places[place].address == block->address && equals_before-- == 0)
                break;
        }
        assert_int_equal(trial->places[place].id, block->id);
    }
}

static void try_all(const struct trial *before, int depth) {
    for (size_t operation = 0; operation < 2 * KEYS; operation++) {
        struct trial trial = *before;
        struct sampled_table table = table_of(&trial);
        uint64_t key = trial.keys[operation / 2];
        if (operation % 2 == 0) {
            /* More than three quarters would make it grow, out of these places. */
            if (4 * (trial.model.count + 1) > 3 * CAPACITY)
                continue;
            struct sampled block = {key, ++trial.last_id, trial.last_id};
            assert_true(sampled_table_add(&table, &block));
            trial.model.blocks[trial.model.count++] = block;
        } else {
            struct sampled removed = {0}, expected = {0};
            bool there = model_remove(&trial.model, key, &expected);
            assert_int_equal(sampled_table_remove(&table, key, &removed), there);
            assert_memory_equal(&removed, &expected, sizeof removed);
        }
        assert_int_equal(table.count, trial.model.count);
        assert_as_model(&trial);
        if (depth > 1)
            try_all(&trial, depth - 1);
    }
}

/* Homes that are the same, beside each other, and at the table's end, from which searches go on at its beginning. */
static void every_short_history_of_a_small_table(void **state) {
    (void)state;
    const size_t homes[][KEYS] = {{7, 7, 7, 7}, {6, 7, 7, 0}, {7, 0, 7, 1}, {3, 3, 4, 5}, {5, 4, 4, 3}, {6, 6, 7, 0}};
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        struct trial trial = {0};
        for (size_t key = 0; key < KEYS; key++)
            trial.keys[key] = address_with_home(homes[i][key], key == 0 ? 0 : trial.keys[key - 1]);
        try_all(&trial, DEPTH);
    }
}

/* --- Large, with growth. --- */

static void a_table_grows_and_loses_nothing(void **state) {
    (void)state;
    enum { BLOCKS = 20000 };
    struct sampled_table table = {0};
    struct sampled found;
    for (uint64_t i = 1; i <= BLOCKS; i++)
        assert_true(sampled_table_add(&table, &(struct sampled){16 * i, i, i}));
    assert_int_equal(table.count, BLOCKS);
    for (uint64_t i = 1; i <= BLOCKS; i += 2) {
        assert_true(sampled_table_remove(&table, 16 * i, &found));
        assert_int_equal(found.id, i);
        assert_false(sampled_table_remove(&table, 16 * i, &found));
    }
    for (uint64_t i = 2; i <= BLOCKS; i += 2) {
        assert_true(sampled_table_remove(&table, 16 * i, &found));
        assert_int_equal(found.size_bytes, i);
    }
    for (size_t i = 0; i < table.capacity; i++)
        assert_int_equal(table.entries[i].address, 0);
    sampled_table_release(&table);
}

/* Equals keep their order when the table grows around them, wherever it begins. */
static void order_survives_growth(void **state) {
    (void)state;
    for (uint64_t address = 16; address <= 16 * 500; address += 16) {
        struct sampled_table table = {0};
        struct sampled found;
        for (uint64_t i = 1; i <= 300; i++)
            assert_true(sampled_table_add(&table, &(struct sampled){i % 3 == 0 ? address : 16 * i + 100000, i, 0}));
        for (uint64_t i = 3; i <= 300; i += 3) {
            assert_true(sampled_table_remove(&table, address, &found));
            assert_int_equal(found.id, i);
        }
        sampled_table_release(&table);
    }
}

/* --- What all threads share. --- */

static void the_filter_knows_what_is_there(void **state) {
    (void)state;
    struct sampled found;
    const uint64_t address = 0x7f0012345670;
    assert_false(sampled_may_hold(address));
    /* More than a counter can count: it says that there may be one for ever after. */
    for (uint64_t id = 1; id <= 300; id++)
        assert_true(sampled_add(&(struct sampled){address, id, 1}));
    for (uint64_t id = 1; id <= 300; id++) {
        assert_true(sampled_may_hold(address));
        assert_true(sampled_remove(address, &found));
        assert_int_equal(found.id, id);
    }
    assert_true(sampled_may_hold(address));
    assert_false(sampled_remove(address, &found));
    const uint64_t other = 0x7f0012345690;
    assert_false(sampled_may_hold(other));
    assert_true(sampled_add(&(struct sampled){other, 1, 1}));
    assert_true(sampled_may_hold(other));
    assert_true(sampled_remove(other, &found));
    assert_false(sampled_may_hold(other));
    sampled_forget_all();
    assert_false(sampled_may_hold(address));
}

enum { THREADS = 4, ROUNDS = 20000, HELD = 64 };

/* Adds and removes blocks of its own, and some that all threads add and remove at the same addresses. */
static void *work(void *argument) {
    uint64_t number = (uint64_t)(uintptr_t)argument, wrong = 0;
    struct sampled found;
    for (uint64_t i = 0; i < ROUNDS + HELD; i++) {
        uint64_t own = (number << 40) + 16 * (i + 1), shared = (UINT64_C(9) << 40) + 16 * (i % 7);
        if (i < ROUNDS) {
            wrong += !sampled_add(&(struct sampled){own, i, number});
            wrong += !sampled_add(&(struct sampled){shared, i, number});
            wrong += !sampled_remove(shared, &found);
        }
        if (i >= HELD) {
            wrong += !sampled_may_hold(own - 16 * HELD) || !sampled_remove(own - 16 * HELD, &found) ||
                     found.id != i - HELD || found.size_bytes != number;
        }
    }
    return (void *)(uintptr_t)wrong;
}

static void threads_do_not_disturb_each_other(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    for (size_t i = 0; i < SAMPLED_FILTER_BYTES; i++)
        assert_int_equal(atomic_load(&sampled_filter[i]), 0);
}

static void a_child_begins_anew(void **state) {
    (void)state;
    struct sampled found;
    assert_true(sampled_add(&(struct sampled){160, 1, 1}));
    pid_t child = fork();
    if (child == 0) {
        sampled_forget_all();
        bool forgotten = !sampled_may_hold(160) && !sampled_remove(160, &found);
        bool works = sampled_add(&(struct sampled){160, 2, 2}) && sampled_remove(160, &found) && found.id == 2;
        _exit(forgotten && works ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(sampled_remove(160, &found));
    assert_int_equal(found.id, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_short_history_of_a_small_table),
        cmocka_unit_test(a_table_grows_and_loses_nothing),
        cmocka_unit_test(order_survives_growth),
        cmocka_unit_test(the_filter_knows_what_is_there),
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(a_child_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
