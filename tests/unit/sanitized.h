/* Whether this program was built with AddressSanitizer, which puts its own functions in the place of libc's, and its
 * own code into ours. */
#ifndef STROBE_TESTS_SANITIZED_H
#define STROBE_TESTS_SANITIZED_H

#include <stdbool.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER true
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER true
#endif
#ifndef HAS_ADDRESS_SANITIZER
#define HAS_ADDRESS_SANITIZER false
#endif

#endif
