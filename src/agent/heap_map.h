/* Anonymous mappings that the program makes: in the footprint, and told like blocks of malloc's, but for those from
 * which a Python allocator serves objects, which are told themselves. What malloc maps for its blocks is not counted.
 */
#ifndef STROBE_AGENT_HEAP_MAP_H
#define STROBE_AGENT_HEAP_MAP_H

/* Before another library's allocator is called for the first time, which may map. */
void heap_map_find_next(void);
/* From here on mappings are counted. `allocator` is a function of the library whose own are not. Once, from the
 * constructor; may allocate. */
void heap_map_begin(const void *allocator);
/* In a child of fork, before anything else: what it has inherited is known, unless a thread was changing that. */
void heap_map_forget(void);

#endif
