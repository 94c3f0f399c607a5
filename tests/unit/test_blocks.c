#include "agent/blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka.h needs those four before it
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 48, ROUNDS = 400000 };

/* What is known has to be what was put, as long as no two blocks overlap. */
struct model {
    uint64_t address;
    struct block block; /* site 0: none */
};

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Addresses 64 bytes apart, across the borders of leaves and of tables, and at both ends; so that each has room for the
 * entries of its size. Every other one is at an odd multiple of 8. */
static void make_places(struct model places[PLACES]) {
    static const uint64_t BORDERS[] = {UINT64_C(1) << 24,     UINT64_C(0x7f12) << 32, UINT64_C(1) << 36,
                                       UINT64_C(0x555) << 36, UINT64_C(1) << 47,      UINT64_C(0xffff) << 32};
    for (size_t i = 0; i < PLACES; i++) {
        uint64_t border = BORDERS[i / 8];
        places[i] = (struct model){.address = border + (i % 8) * 64 - 256 + (i % 2) * 8};
    }
}

static uint64_t random_size(uint64_t *random) {
    switch (next_random(random) % 4) {
    case 0:
        return next_random(random) % 8;
    case 1:
        return BLOCKS_SIZE_BEHIND - 2 + next_random(random) % 4;
    case 2:
        return next_random(random) << (next_random(random) % 12);
    default:
        return next_random(random) % BLOCKS_SIZE_BEHIND;
    }
}

static void test_all_is_known(void **state) {
    (void)state;
    struct model places[PLACES];
    uint64_t random = 20011;
    make_places(places);
    for (size_t round = 0; round < ROUNDS; round++) {
        struct model *place = &places[next_random(&random) % PLACES];
        struct block taken = {0, 0};
        assert_int_equal(blocks_take(place->address, &taken), place->block.site != 0);
        if (place->block.site != 0) {
            assert_int_equal(taken.site, place->block.site);
            assert_int_equal(taken.size_bytes, place->block.size_bytes);
        }
        place->block = (struct block){0, 0};
        if (next_random(&random) % 3 == 0)
            continue;
        uint32_t site = 1 + (uint32_t)(next_random(&random) % (BLOCKS_MAX_SITES - 1));
        place->block = (struct block){site, random_size(&random)};
        assert_true(blocks_put(place->address, &place->block));
    }
}

/* Where a large block's size stood there is nothing afterwards. */
static void test_nothing_is_left(void **state) {
    (void)state;
    const uint64_t address = UINT64_C(0x7f0000ffffe0); /* its size stands in the next leaf */
    const struct block large = {77, (UINT64_C(1) << 40) + 0x12345};
    struct block taken;
    assert_true(blocks_put(address, &large));
    assert_true(blocks_take(address, &taken));
    assert_int_equal(taken.size_bytes, large.size_bytes);
    for (uint64_t i = 0; i < 4; i++)
        assert_false(blocks_take(address + i * BLOCKS_GRANULE_BYTES, &taken));
}

static void test_strange_addresses(void **state) {
    (void)state;
    const struct block block = {1, 16};
    struct block taken;
    assert_false(blocks_put(UINT64_C(1) << 48, &block));
    assert_false(blocks_take(UINT64_C(1) << 48, &taken));
    assert_false(blocks_take(UINT64_MAX - 15, &taken));
    assert_false(blocks_take(0, &taken));
    assert_null(blocks_find(UINT64_C(0x123456789000), false));
}

static void test_child_of_fork(void **state) {
    (void)state;
    const uint64_t address = UINT64_C(0x7abc00000010);
    const struct block block = {5, 4001};
    struct block taken;
    int status = 0;
    assert_true(blocks_put(address, &block));
    pid_t child = fork();
    if (child == 0)
        _exit(blocks_take(address, &taken) ? 1 : 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(blocks_take(address, &taken));
    assert_int_equal(taken.size_bytes, block.size_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_known),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_strange_addresses),
        cmocka_unit_test(test_child_of_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
