/* Stands in for an object that CPython is linked into. Built in three ways: with symbols (FAKE_EXPORTED), with nothing
 * but the section (FAKE_SECTION), and with nothing but the bytes at the beginning. */
#include <stdint.h>

uint64_t *fake_runtime_address(void);

#if defined(FAKE_EXPORTED)
const unsigned long Py_Version = 0x030d01f0;
uint64_t _PyRuntime[64] = {1};
#define RUNTIME _PyRuntime
#elif defined(FAKE_SECTION)
static uint64_t runtime[64] __attribute__((used, section(".PyRuntime"))) = {1};
#define RUNTIME runtime
#else
static uint64_t padding[3000] __attribute__((used)) = {1};
/* "xdebugpy" */
static uint64_t runtime[64] __attribute__((used)) = {0x7970677562656478};
#define RUNTIME runtime
#endif

__attribute__((visibility("default"))) uint64_t *fake_runtime_address(void) {
    return RUNTIME;
}
