/* Loops as compilers lay them out, in assembly: one of labels in three parts, and one of handlers. */
#include "sampler/eval_loop.h"

#include "own_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if defined(__aarch64__)
#define JUMP "b "
#define JUMP_IF "b.eq "
#else
#define JUMP "jmp "
#define JUMP_IF "je "
#endif

/* clang-format off */
__asm__(
    ".text\n"
    ".altmacro\n"
    ".macro function name\n"
    "  .balign 16\n"
    "  .type \\name, %function\n"
    "\\name:\n"
    "  .cfi_startproc\n"
    "  nop\n"
    ".endm\n"
    ".macro function_end name\n"
    "  nop\n"
    "  .cfi_endproc\n"
    "  .size \\name, . - \\name\n"
    ".endm\n"
    /* The loop jumps into the middle of its cold part, and to the beginning of a function that is called last. */
    ".globl loop_entry, loop_cold, loop_apart, called_last\n"
    "function loop_entry\n"
    "  " JUMP_IF "loop_cold_label\n"
    "loop_label:\n"
    "  " JUMP_IF "loop_cold_label\n"
    "  " JUMP_IF "called_last\n"
    "  " JUMP_IF "called_last\n"
    "  " JUMP_IF "called_last\n"
    "  " JUMP_IF "neighbour_label\n"
    "  " JUMP "loop_cold_label\n"
    "function_end loop_entry\n"
    "function neighbour\n"
    "neighbour_label:\n"
    "function_end neighbour\n"
    "function loop_cold\n"
    "loop_cold_label:\n"
    "  nop\n"
    "function_end loop_cold\n"
    "function called_last\n"
    "function_end called_last\n"
    "function loop_apart\n"
    "loop_apart_label:\n"
    "function_end loop_apart\n"
    /* Handlers go on to one another, and to what ends them all. */
    ".globl handler_entry, handlers_end, handler_0, handler_150\n"
    "function handler_entry\n"
    "function_end handler_entry\n"
    "function handlers_end\n"
    "function_end handlers_end\n"
    ".macro handler number\n"
    "function handler_\\number\n"
    "  " JUMP "handlers_end\n"
    "function_end handler_\\number\n"
    ".endm\n"
    ".set number, 0\n"
    ".rept 200\n"
    "handler %number\n"
    ".set number, number + 1\n"
    ".endr\n"
    ".section .data.rel.ro, \"aw\"\n"
    ".balign 8\n"
    "  .quad 0\n"
    ".rept 200\n  .quad loop_label\n.endr\n"
    ".rept 30\n  .quad loop_cold_label\n.endr\n"
    ".rept 26\n  .quad loop_apart_label\n.endr\n"
    "  .quad 0\n"
    ".macro handler_word number\n"
    "  .quad handler_\\number\n"
    ".endm\n"
    ".set number, 0\n"
    ".rept 200\n"
    "handler_word %number\n"
    ".set number, number + 1\n"
    ".endr\n"
    ".rept 56\n  .quad handler_0\n.endr\n"
    "  .quad 0\n"
    ".noaltmacro\n"
    ".text\n");
/* clang-format on */

extern const char loop_entry[], loop_cold[], loop_apart[], called_last[];
extern const char handler_entry[], handlers_end[], handler_0[], handler_150[];

static struct own_file own;

static bool holds(const struct eval_loop *loop, const char *function) {
    return eval_loop_holds(loop, own_file_address(&own, function));
}

static enum status find(const char *entry, struct eval_loop *loop) {
    return eval_loop_find(own.file, own.data, own.table, own_file_address(&own, entry), loop);
}

static void test_parts_are_found_by_labels_and_jumps(void **state) {
    (void)state;
    static struct eval_loop loop;
    assert_int_equal(find(loop_entry, &loop), STATUS_OK);
    assert_int_equal(loop.count, 3);
    assert_true(holds(&loop, loop_entry) && holds(&loop, loop_cold) && holds(&loop, loop_apart));
    assert_false(holds(&loop, called_last) || holds(&loop, handler_0));
    assert_true(holds(&loop, loop_cold + 2));
    for (size_t i = 1; i < loop.count; i++)
        assert_true(loop.ranges[i - 1].end <= loop.ranges[i].start);
}

static void test_handlers_are_found_by_their_table(void **state) {
    (void)state;
    static struct eval_loop loop;
    assert_int_equal(find(handler_entry, &loop), STATUS_OK);
    assert_true(holds(&loop, handler_entry) && holds(&loop, handler_0) && holds(&loop, handler_150));
    assert_true(holds(&loop, handlers_end));
    assert_int_equal(loop.count, 202);
    assert_false(holds(&loop, loop_entry));
}

static void test_no_function_is_no_loop(void **state) {
    (void)state;
    static struct eval_loop loop;
    assert_int_equal(eval_loop_find(own.file, own.data, own.table, 0, &loop), STATUS_NOT_FOUND);
    assert_false(eval_loop_holds(&loop, 0));
    assert_false(eval_loop_holds(&loop, UINT64_MAX));
}

static int set_up(void **state) {
    (void)state;
    own_file_open(&own);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    own_file_close(&own);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_found_by_labels_and_jumps),
        cmocka_unit_test(test_handlers_are_found_by_their_table),
        cmocka_unit_test(test_no_function_is_no_loop),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
