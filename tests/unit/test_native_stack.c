/* The test's own stack: what the C library's unwinder (backtrace) and its dynamic linker (dladdr) say is the truth. */
#include "unwind/native_stack.h"

#include "elf/symbol_table.h"
#include "elf/unwind_table.h"
#include "own_stack.h"
#include "sanitized.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEPTH_MAX = 64, WORDS_MAX = 4096 };

/* What was seen where a signal interrupted the program. */
static struct {
    struct native_stack stack;
    uint64_t words[WORDS_MAX];
    void *truth[DEPTH_MAX];
    int truth_count;
} seen;

struct object {
    char path[512];
    uint64_t bias;
    struct elf_file *file;
    struct unwind_table *table;
};

static struct object objects[16];
static size_t object_count;
static remote_addr stack_end;

static int open_object(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    (void)argument;
    struct object *object = &objects[object_count];
    const char *path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || object_count == sizeof objects / sizeof objects[0])
        return 0;
    object->bias = info->dlpi_addr;
    assert_int_equal(elf_file_open(fd, &object->file), STATUS_OK);
    if (unwind_table_load(object->file, &object->table) == STATUS_OK)
        object_count++;
    else
        elf_file_free(object->file);
    (void)close(fd);
    return 0;
}

static const struct object *object_of(remote_addr address) {
    for (size_t i = 0; i < object_count; i++)
        if (unwind_table_find(objects[i].table, address - objects[i].bias) != NULL)
            return &objects[i];
    return NULL;
}

static void on_signal(int number, siginfo_t *info, void *argument) {
    (void)number;
    (void)info;
    const ucontext_t *context = argument;
#if defined(__x86_64__)
    seen.stack.program_counter = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    seen.stack.stack_pointer = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
    seen.stack.frame_pointer = (uint64_t)context->uc_mcontext.gregs[REG_RBP];
#elif defined(__aarch64__)
    seen.stack.program_counter = context->uc_mcontext.pc;
    seen.stack.stack_pointer = context->uc_mcontext.sp;
    seen.stack.frame_pointer = context->uc_mcontext.regs[29];
    seen.stack.return_register = context->uc_mcontext.regs[30];
#endif
    size_t count = (size_t)(stack_end - seen.stack.stack_pointer) / sizeof seen.words[0];
    seen.stack.innermost = true;
    seen.stack.words_address = seen.stack.stack_pointer;
    seen.stack.words = seen.words;
    seen.stack.word_count = count < WORDS_MAX ? count : WORDS_MAX;
    copy_own_stack(seen.words, seen.stack.stack_pointer, seen.stack.word_count);
    seen.truth_count = backtrace(seen.truth, DEPTH_MAX);
}

/* The frames that backtrace saw above the signal's own. */
static void **interrupted(int *count) {
    int first = 0;
    while (first < seen.truth_count && (uint64_t)seen.truth[first] != seen.stack.program_counter)
        first++;
    assert_true(first < seen.truth_count);
    *count = seen.truth_count - first;
    return seen.truth + first;
}

static void compare_with_backtrace(void) {
    int count = 0;
    void **truth = interrupted(&count);
    struct native_stack stack = seen.stack;
    assert_true(count > 3);
    for (int i = 0; i < count; i++) {
        struct unwind_row row;
        assert_int_equal(stack.program_counter, (uint64_t)truth[i]);
        const struct object *object = object_of(native_stack_place(&stack));
        if (object == NULL) {
            assert_int_equal(i, count - 1); /* _start need not have a row */
            return;
        }
        enum status status = unwind_table_read_row(object->table, native_stack_place(&stack) - object->bias, &row);
        assert_int_equal(status, STATUS_OK);
        status = native_stack_step(&stack, &row);
        assert_true(status == STATUS_OK || (i == count - 1 && status != STATUS_OK));
        if (status != STATUS_OK)
            return;
    }
}

/* With a frame that is found by its own register (alloca), one aligned, one plain. */
static int compare(const void *left, const void *right) {
    (void)raise(SIGUSR1);
    return *(const int *)left - *(const int *)right;
}

__attribute__((noinline)) static int with_alloca(int size) {
    volatile char *memory = __builtin_alloca((size_t)size);
    int numbers[] = {2, 1};
    memory[0] = 1;
    qsort(numbers, 2, sizeof numbers[0], compare);
    return numbers[0] + memory[0];
}

__attribute__((noinline)) static int with_alignment(int size) {
    volatile char memory[256] __attribute__((aligned(256)));
    memory[1] = (char)size;
    return with_alloca(size) + memory[1];
}

static void test_stack_is_that_of_backtrace(void **state) {
    (void)state;
    assert_int_equal(with_alignment(100), 102);
    compare_with_backtrace();
}

static unsigned long stepped, stepped_right;

/* Every instruction of some calls, prologues and epilogues and stubs of the linkage table included. */
static void trace_one(int number, siginfo_t *info, void *argument) {
    on_signal(number, info, argument);
    struct native_stack stack = seen.stack;
    struct unwind_row row;
    int count = 0;
    void **truth = interrupted(&count);
    const struct object *object = object_of(stack.program_counter);
    stepped++;
    if (object != NULL &&
        unwind_table_read_row(object->table, stack.program_counter - object->bias, &row) == STATUS_OK &&
        native_stack_step(&stack, &row) == STATUS_OK && count > 1 && stack.program_counter == (uint64_t)truth[1])
        stepped_right++;
}

static void test_caller_is_found_from_every_instruction(void **state) {
    (void)state;
    /* Some of its own instructions have no row that is right. */
    if (HAS_ADDRESS_SANITIZER)
        return;
#if defined(__x86_64__)
    struct sigaction action = {.sa_sigaction = trace_one, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
    void *(*volatile allocate)(size_t) = malloc; /* so that no compiler knows them */
    void (*volatile release)(void *) = free;
    void *pieces[4];
    /* Sets the trap flag, and clears it after. */
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    for (int i = 0; i < 4; i++)
        pieces[i] = allocate((size_t)i * 100 + 1);
    for (int i = 0; i < 4; i++)
        release(pieces[i]);
    __asm__ volatile("pushfq; andq $-0x101, (%%rsp); popfq" ::: "memory", "cc");
    assert_true(stepped > 200);
    assert_int_equal(stepped_right, stepped);
#endif
}

static void test_a_frame_beyond_the_copy_is_said_to_be(void **state) {
    (void)state;
    struct unwind_row row;
    assert_int_equal(with_alignment(100), 102);
    struct native_stack stack = seen.stack;
    const struct object *object = object_of(stack.program_counter);
    assert_non_null(object);
    assert_int_equal(unwind_table_read_row(object->table, stack.program_counter - object->bias, &row), STATUS_OK);
    stack.word_count = 0;
    if (!row.return_in_register)
        assert_int_equal(native_stack_step(&stack, &row), STATUS_LIMIT);
    assert_int_equal(stack.program_counter, seen.stack.program_counter);
}

static bool is_truth(void *context, remote_addr address) {
    (void)context;
    for (int i = 0; i < seen.truth_count; i++)
        if ((uint64_t)seen.truth[i] == address)
            return true;
    return false;
}

static void test_scan_finds_the_next_return_address(void **state) {
    (void)state;
    int count = 0;
    assert_int_equal(with_alignment(100), 102);
    void **truth = interrupted(&count);
    struct native_stack stack = seen.stack;
    assert_int_equal(native_stack_scan(&stack, is_truth, NULL), STATUS_OK);
    assert_int_equal(stack.program_counter, (uint64_t)truth[1]);
    assert_false(stack.innermost);
}

static void test_symbols_are_those_of_the_dynamic_linker(void **state) {
    (void)state;
    static void *const functions[] = {(void *)qsort, (void *)malloc, (void *)free, (void *)raise};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        Dl_info info;
        struct symbol symbol;
        struct symbol_table *table = NULL;
        uint64_t address = (uint64_t)functions[i];
        const struct object *object = object_of(address);
        assert_non_null(object);
        assert_int_equal(symbol_table_load(object->file, NULL, &table), STATUS_OK);
        assert_int_equal(symbol_table_find(table, address - object->bias + 1, &symbol), STATUS_OK);
        assert_true(dladdr(functions[i], &info) != 0);
        assert_int_equal(symbol.start + object->bias, (uint64_t)info.dli_saddr);
        assert_int_equal(symbol_table_find(table, 1, &symbol), STATUS_NOT_FOUND);
        symbol_table_free(table);
    }
}

static void test_ranges_are_functions(void **state) {
    (void)state;
    const struct object *object = object_of((uint64_t)with_alloca);
    assert_non_null(object);
    const struct unwind_range *range = unwind_table_find(object->table, (uint64_t)with_alloca - object->bias + 2);
    assert_non_null(range);
    assert_int_equal(range->start, (uint64_t)with_alloca - object->bias);
    assert_int_equal(range->end - range->start > 16, 1);
    size_t count = 0;
    const struct unwind_range *ranges = unwind_table_ranges(object->table, &count);
    for (size_t i = 1; i < count; i++)
        assert_true(ranges[i - 1].end <= ranges[i].start);
    assert_null(unwind_table_find(object->table, 0));
    assert_null(unwind_table_find(object->table, UINT64_MAX));
}

static int set_up(void **state) {
    (void)state;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    void *ignored[2];
    char line[256];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "[stack]") != NULL)
            stack_end = strtoull(strchr(line, '-') + 1, NULL, 16);
    if (maps != NULL)
        (void)fclose(maps);
    (void)backtrace(ignored, 2); /* loads what it needs */
    (void)dl_iterate_phdr(open_object, NULL);
    return sigaction(SIGUSR1, &action, NULL);
}

static int tear_down(void **state) {
    (void)state;
    for (size_t i = 0; i < object_count; i++) {
        unwind_table_free(objects[i].table);
        elf_file_free(objects[i].file);
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_functions),
        cmocka_unit_test(test_symbols_are_those_of_the_dynamic_linker),
        cmocka_unit_test(test_stack_is_that_of_backtrace),
        cmocka_unit_test(test_caller_is_found_from_every_instruction),
        cmocka_unit_test(test_a_frame_beyond_the_copy_is_said_to_be),
        cmocka_unit_test(test_scan_finds_the_next_return_address),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
