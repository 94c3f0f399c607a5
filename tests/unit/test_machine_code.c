#include "elf/machine_code.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* As objdump disassembles them. */
struct call {
    uint16_t machine;
    uint8_t before[MACHINE_CODE_CALL_BYTES];
    enum machine_call kind;
    uint64_t target; /* of a call that returns to 0x401000 */
};

static const struct call calls[] = {
    {EM_X86_64, {0x90, 0x90, 0xe8, 0xfb, 0x0f, 0, 0}, MACHINE_CALL_DIRECT, 0x401ffb},    /* call 401ffb */
    {EM_X86_64, {0x90, 0x90, 0xe8, 0, 0xf0, 0xff, 0xff}, MACHINE_CALL_DIRECT, 0x400000}, /* call 400000 */
    {EM_X86_64, {0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0}, MACHINE_CALL_INDIRECT, 0},   /* call *%rax */
    {EM_X86_64, {0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4}, MACHINE_CALL_INDIRECT, 0},   /* call *%r12 */
    {EM_X86_64, {0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x30}, MACHINE_CALL_INDIRECT, 0},   /* call *0x30(%rax) */
    {EM_X86_64, {0x90, 0xff, 0x90, 0x38, 1, 0, 0}, MACHINE_CALL_INDIRECT, 0},            /* call *0x138(%rax) */
    {EM_X86_64, {0x90, 0x90, 0x90, 0xff, 0x54, 0x24, 0x18}, MACHINE_CALL_INDIRECT, 0},   /* call *0x18(%rsp) */
    {EM_X86_64, {0xff, 0x14, 0xc5, 0xc0, 0x25, 0x98, 0}, MACHINE_CALL_INDIRECT, 0},      /* call *0x9825c0(,%rax,8) */
    {EM_X86_64, {0x90, 0xff, 0x15, 0x10, 0x20, 0, 0}, MACHINE_CALL_IMPORTED, 0},         /* call *0x2010(%rip) */
    {EM_X86_64, {0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0}, MACHINE_CALL_NONE, 0},       /* jmp *%rax */
    {EM_X86_64, {0x90, 0x90, 0x48, 0x89, 0xe5, 0x41, 0x57}, MACHINE_CALL_NONE, 0},       /* push %r15 */
    {EM_AARCH64, {0, 0, 0, 0x01, 0x04, 0x00, 0x94}, MACHINE_CALL_DIRECT, 0x402000},      /* bl 402000 */
    {EM_AARCH64, {0, 0, 0, 0xff, 0xff, 0xff, 0x97}, MACHINE_CALL_DIRECT, 0x400ff8},      /* bl 400ff8 */
    {EM_AARCH64, {0, 0, 0, 0x60, 0x00, 0x3f, 0xd6}, MACHINE_CALL_INDIRECT, 0},           /* blr x3 */
    {EM_AARCH64, {0, 0, 0, 0x1f, 0x08, 0x3f, 0xd6}, MACHINE_CALL_INDIRECT, 0},           /* blraaz x0 */
    {EM_AARCH64, {0, 0, 0, 0xc0, 0x03, 0x5f, 0xd6}, MACHINE_CALL_NONE, 0},               /* ret */
    {EM_RISCV, {0x90, 0x90, 0xe8, 0xfb, 0x0f, 0, 0}, MACHINE_CALL_NONE, 0},
};

static void test_calls(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        uint64_t target = 1;
        assert_int_equal(machine_code_call(calls[i].machine, calls[i].before, 0x401000, &target), calls[i].kind);
        assert_int_equal(target, calls[i].target);
    }
}

static void test_jumps_that_leave(void **state) {
    (void)state;
    /* jmp 401100; je 401005 (stays); jne 400000; jmp 401200, cut off */
    static const uint8_t x86[] = {0xe9, 0xfb, 0,    0,    0,    0x0f, 0x84, 0xfa, 0xff, 0xff, 0xff,
                                  0x0f, 0x85, 0xef, 0xef, 0xff, 0xff, 0xe9, 0xea, 0x01, 0};
    /* b 401100; b.ne 401008 (stays); cbz x0, 401014; tbnz w1, #3, 400ff0; ret */
    static const uint8_t aarch64[] = {0x40, 0,    0,    0x14, 0x21, 0,    0,    0x54, 0x60, 0,
                                      0,    0xb4, 0x21, 0xff, 0x1f, 0x37, 0xc0, 0x03, 0x5f, 0xd6};
    /* jmp 401010, which is none in the middle of a function; jmp 401012, to the neighbour */
    static const uint8_t near[] = {0xeb, 0x0e, 0xeb, 0x0e};
    uint64_t targets[8] = {0};
    assert_int_equal(machine_code_jumps(EM_X86_64, x86, sizeof x86, 0x401000, targets, 8), 2);
    assert_int_equal(targets[0], 0x401100);
    assert_int_equal(targets[1], 0x400000);
    assert_int_equal(machine_code_jumps(EM_X86_64, near, sizeof near, 0x401000, targets, 8), 1);
    assert_int_equal(targets[0], 0x401012);
    assert_int_equal(machine_code_jumps(EM_AARCH64, aarch64, sizeof aarch64, 0x401000, targets, 8), 3);
    assert_int_equal(targets[0], 0x401100);
    assert_int_equal(targets[1], 0x401014);
    assert_int_equal(targets[2], 0x400ff0);
    /* More than there is room for are counted all the same. */
    memset(targets, 0, sizeof targets);
    assert_int_equal(machine_code_jumps(EM_AARCH64, aarch64, sizeof aarch64, 0x401000, targets, 1), 3);
    assert_int_equal(targets[1], 0);
}

static void test_stubs_of_the_linkage_table(void **state) {
    (void)state;
    /* jmp *0x2fe2(%rip); push $0; jmp ... */
    static const uint8_t plain[MACHINE_CODE_STUB_BYTES] = {0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68};
    /* endbr64; bnd jmp *0x2fe2(%rip) */
    static const uint8_t guarded[MACHINE_CODE_STUB_BYTES] = {0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xe2, 0x2f};
    /* adrp x16, 411000; ldr x17, [x16, #24]; add x16, x16, #24; br x17 */
    static const uint8_t aarch64[MACHINE_CODE_STUB_BYTES] = {0x90, 0,    0, 0x90, 0x11, 0x0e, 0x40, 0xf9,
                                                             0x10, 0x62, 0, 0x91, 0x20, 0x02, 0x1f, 0xd6};
    static const uint8_t none[MACHINE_CODE_STUB_BYTES] = {0x55, 0x48, 0x89, 0xe5};
    assert_int_equal(machine_code_stub(EM_X86_64, plain, 0x401020), 0x404008);
    assert_int_equal(machine_code_stub(EM_X86_64, guarded, 0x401020), 0x40400d);
    assert_int_equal(machine_code_stub(EM_AARCH64, aarch64, 0x401020), 0x411018);
    assert_int_equal(machine_code_stub(EM_X86_64, none, 0x401020), 0);
    assert_int_equal(machine_code_stub(EM_AARCH64, none, 0x401020), 0);
}

static void test_system_calls(void **state) {
    (void)state;
    static const uint8_t x86[MACHINE_CODE_CALL_BYTES] = {0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05};
    static const uint8_t aarch64[MACHINE_CODE_CALL_BYTES] = {0, 0, 0, 0x01, 0, 0, 0xd4};
    assert_true(machine_code_system_call(EM_X86_64, x86));
    assert_false(machine_code_system_call(EM_X86_64, aarch64));
    assert_true(machine_code_system_call(EM_AARCH64, aarch64));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_jumps_that_leave),
        cmocka_unit_test(test_stubs_of_the_linkage_table),
        cmocka_unit_test(test_system_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
