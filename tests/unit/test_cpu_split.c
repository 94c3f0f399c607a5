/* The test is its own target: a function of its stands for the evaluation loop, others for what it calls. Each raises a
 * signal, whose handler makes a sample as the agent would. */
#include "sampler/cpu_split.h"

#include "cpython/layout.h"
#include "own_stack.h"
#include "sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

/* CPython 3.12's. */
enum { CALL = 171, BINARY_OP = 122, NS = 1000000, METH_O = 8 };

static struct wire_sample sample;
/* Not more than there is above main. */
enum { STACK_WORDS = 256 };
static uint64_t words[STACK_WORDS];

static void take_sample(int number, siginfo_t *info, void *argument) {
    (void)number;
    (void)info;
    const ucontext_t *context = argument;
#if defined(__x86_64__)
    sample.program_counter = (uint64_t)context->uc_mcontext.gregs[REG_RIP];
    sample.stack_pointer = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
    sample.frame_register = (uint64_t)context->uc_mcontext.gregs[REG_RBP];
#elif defined(__aarch64__)
    sample.program_counter = context->uc_mcontext.pc;
    sample.stack_pointer = context->uc_mcontext.sp;
    sample.frame_register = context->uc_mcontext.regs[29];
    sample.return_register = context->uc_mcontext.regs[30];
#endif
    sample.stack_words = STACK_WORDS;
    copy_own_stack(words, sample.stack_pointer, STACK_WORDS);
}

/* No call may be a function's last, or its frame is gone. */
static volatile int after;

static int method(int argument) {
    (void)raise(SIGUSR1);
    return after + argument;
}

__attribute__((noinline)) static int not_a_method(int argument) {
    (void)raise(SIGUSR1);
    return after - argument;
}

/* Keeps more on the stack than a sample has of it. */
static int deep(int argument) {
    volatile uint64_t room[2 * STACK_WORDS];
    room[0] = (uint64_t)argument;
    (void)raise(SIGUSR1);
    return after + (int)room[0];
}

static int sort_something(int argument) {
    int numbers[2] = {argument, 1};
    qsort(numbers, 2, sizeof numbers[0], (int (*)(const void *, const void *))(void (*)(void))method);
    return after + numbers[0];
}

/* Compilers see nobody who reads it. */
__attribute__((used)) static struct {
    const char *ml_name;
    int (*ml_meth)(int);
    int ml_flags;
    const char *ml_doc;
} methods[] = {
    {"method", method, METH_O, NULL}, {"sort_something", sort_something, METH_O, NULL}, {NULL, NULL, 0, NULL}};

/* Calls C functions, and by itself what is none. */
__attribute__((noinline)) static int evaluate(int (*volatile function)(int)) {
    if (function == not_a_method)
        return after + not_a_method(1);
    return after + function(1);
}

static struct process *process;
static struct code_files *files;
static struct cpu_split *split;
static const struct layout layout = {.version = 0x030c0000};

/* What a sample says that is taken while the loop calls `function`, at an instruction. */
static struct sample_cpu told(int (*function)(int), uint32_t instruction, bool in_python) {
    struct sample_cpu cpu;
    memset(&sample, 0, sizeof sample);
    (void)evaluate(function);
    sample.code_unit = instruction;
    cpu_split_take(split, NULL, &sample, words, in_python, NS, &cpu);
    assert_int_equal(cpu.python_ns + cpu.native_ns + cpu.kernel_ns, NS);
    return cpu;
}

static void assert_native(struct sample_cpu cpu, const char *name) {
    assert_int_equal(cpu.native_ns, NS);
    assert_non_null(cpu.library);
    assert_non_null(cpu.function);
    assert_string_equal(cpu.function, name);
}

static void test_called_c_functions_are_native(void **state) {
    (void)state;
    /* Its qsort and its raise keep more on the stack than a sample has of it. */
    if (HAS_ADDRESS_SANITIZER)
        return;
    assert_native(told(method, CALL, true), "method");
    /* The outermost is what the line called. */
    assert_native(told(sort_something, CALL, true), "sort_something");
}

static void test_other_instructions_are_python(void **state) {
    (void)state;
    assert_int_equal(told(method, BINARY_OP, true).python_ns, NS);
    /* Unless it is not known which they are. */
    assert_int_equal(told(method, 0, true).native_ns, NS);
}

static void test_what_is_no_c_function_is_python(void **state) {
    (void)state;
    assert_int_equal(told(not_a_method, CALL, true).python_ns, NS);
}

static void test_deeper_than_was_copied_is_native_under_a_call(void **state) {
    (void)state;
    assert_int_equal(told(deep, CALL, true).native_ns, NS);
    assert_int_equal(told(deep, BINARY_OP, true).python_ns, NS);
}

static void test_the_loop_itself_is_python(void **state) {
    (void)state;
    struct sample_cpu cpu;
    memset(&sample, 0, sizeof sample);
    sample.program_counter = (uint64_t)evaluate;
    sample.code_unit = CALL;
    cpu_split_take(split, NULL, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.python_ns, NS);
    assert_null(cpu.function);
}

static void test_without_python_all_is_native(void **state) {
    (void)state;
    assert_int_equal(told(not_a_method, 0, false).native_ns, NS);
}

static void test_code_in_no_file_is_native(void **state) {
    (void)state;
    struct sample_cpu cpu;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(&sample, 0, sizeof sample);
    sample.program_counter = (uint64_t)code + 100;
    sample.time_ns = 3600 * UINT64_C(1000000000); /* long after the memory map was read */
    cpu_split_take(split, NULL, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.native_ns, NS);
    assert_null(cpu.library);
    /* An address where there is nothing, too, and a stack that is nowhere. */
    sample.program_counter = 1;
    sample.stack_pointer = UINT64_MAX - 7;
    sample.stack_words = STACK_WORDS;
    cpu_split_take(split, NULL, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.native_ns, NS);
    (void)munmap(code, 4096);
}

static void test_the_kernels_part_adds_up(void **state) {
    (void)state;
    struct sample_cpu cpu;
    struct wire_sample before = {.user_us = 1000, .system_us = 500};
    memset(&sample, 0, sizeof sample);
    sample.program_counter = (uint64_t)evaluate;
    sample.user_us = 1000;
    sample.system_us = 4500;
    cpu_split_take(split, &before, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.kernel_ns, NS);
    sample.user_us = 4000;
    sample.system_us = 1500;
    cpu_split_take(split, &before, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.kernel_ns, NS / 4);
    assert_int_equal(cpu.python_ns, NS - NS / 4);
    /* The kernel's estimate can go back, and a ring can say anything. */
    sample.system_us = 400;
    cpu_split_take(split, &before, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.python_ns, NS);
    sample.user_us = sample.system_us = UINT64_MAX;
    cpu_split_take(split, &before, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.python_ns + cpu.kernel_ns, NS);
    /* The first of a thread has its whole past behind it. */
    sample.user_us = sample.system_us = 700;
    cpu_split_take(split, NULL, &sample, words, true, NS, &cpu);
    assert_int_equal(cpu.kernel_ns, NS / 2);
}

static int set_up(void **state) {
    (void)state;
    struct error error = {0};
    struct sigaction action = {.sa_sigaction = take_sample, .sa_flags = SA_SIGINFO};
    return sigaction(SIGUSR1, &action, NULL) != 0 || process_open(getpid(), &process, &error) != STATUS_OK ||
           code_files_new(&files) != STATUS_OK ||
           cpu_split_new(process, &layout, (uint64_t)evaluate, files, &split) != STATUS_OK;
}

static int tear_down(void **state) {
    (void)state;
    cpu_split_free(split);
    code_files_free(files);
    process_free(process);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_called_c_functions_are_native),
        cmocka_unit_test(test_other_instructions_are_python),
        cmocka_unit_test(test_what_is_no_c_function_is_python),
        cmocka_unit_test(test_deeper_than_was_copied_is_native_under_a_call),
        cmocka_unit_test(test_the_loop_itself_is_python),
        cmocka_unit_test(test_without_python_all_is_native),
        cmocka_unit_test(test_code_in_no_file_is_native),
        cmocka_unit_test(test_the_kernels_part_adds_up),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
