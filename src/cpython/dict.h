/* Python dicts of every kind (general, all-str keys, split, inline values), read without calling anything. */
#ifndef STROBE_CPYTHON_DICT_H
#define STROBE_CPYTHON_DICT_H

#include "cpython/runtime.h"

/* The most entries of a dict that are ever followed. */
enum { DICT_MAX_ENTRIES = 1 << 20 };

/* Called for each entry in insertion order; a result other than STATUS_OK ends the walk and is returned. */
typedef enum status dict_visit_fn(void *context, remote_addr key, remote_addr value);

/* Visits the entries of the dict object at `address`. */
enum status dict_visit(struct runtime *runtime, remote_addr address, dict_visit_fn *visit, void *context) MUST_USE;

/* The value for a str key, compared by its UTF-8 text. STATUS_NOT_FOUND when it has none. */
enum status dict_find_text(struct runtime *runtime, remote_addr address, const char *key, remote_addr *value) MUST_USE;

/* Visits the instance attributes of any object: a __dict__ slot, a managed dict, values (3.11, 3.12), inline values
 * (3.13+). STATUS_NOT_FOUND when the object can have none. */
enum status instance_visit(struct runtime *runtime, remote_addr object, dict_visit_fn *visit, void *context) MUST_USE;
enum status instance_find_text(struct runtime *runtime, remote_addr object, const char *name,
                               remote_addr *value) MUST_USE;

#endif
