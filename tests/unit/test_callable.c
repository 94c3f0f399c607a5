#include "cpython/callable.h"

#include "cpython/type.h"
#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_kinds(void **state) {
    (void)state;
    static const struct {
        const char *type;
        enum callable_kind kind;
    } cases[] = {
        {"function", CALLABLE_FUNCTION},
        {"method", CALLABLE_METHOD},
        {"builtin_function_or_method", CALLABLE_C},
        {"method_descriptor", CALLABLE_C},
        {"functools.partial", CALLABLE_C},
        {"functions", CALLABLE_OTHER},
        {"my.method", CALLABLE_OTHER},
        {"int", CALLABLE_OTHER},
    };
    struct fake_target *target = fake_new(12);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        remote_addr object = fake_object(target, fake_type(target, cases[i].type, 0), 64);
        assert_int_equal(callable_kind(&target->runtime, object), cases[i].kind);
    }
    free(target);
}

/* Whatever its metaclass is called. */
static void test_classes(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr metaclass = fake_type(target, "Meta", TYPE_IS_TYPE);
    remote_addr class = fake_type(target, "function", 0);
    fake_put_u64(target, class + target->runtime.layout.object.ob_type, metaclass);
    assert_int_equal(callable_kind(&target->runtime, class), CALLABLE_C);
    free(target);
}

/* What stands in a stack need not be an object. */
static void test_no_objects(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr object = fake_object(target, fake_type(target, "function", 0), 64);
    const remote_addr wrong[] = {0, 1, 8, object + 1, object + 4, FAKE_START + FAKE_BYTES, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(callable_kind(&target->runtime, wrong[i]), CALLABLE_OTHER);
    /* Its type is none. */
    assert_int_equal(callable_kind(&target->runtime, fake_object(target, object, 64)), CALLABLE_OTHER);
    free(target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_no_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
