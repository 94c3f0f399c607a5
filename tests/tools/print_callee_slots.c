/* Prints where strobe thinks that a frame has what it calls, for tests that hold it against the interpreter:
 *
 *   print_callee_slots MINOR    reads lines of bytecode in hexadecimal digits, and prints for each a line
 *                               "OFFSET:KIND:INDEX:LOWER …" of the instructions that have a callee */
#include "cpython/callee_slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t from_hexadecimal(const char *text, uint8_t *bytes) {
    size_t count = 0;
    unsigned value = 0;
    for (; sscanf(text, "%2x", &value) == 1; text += 2)
        bytes[count++] = (uint8_t)value;
    return count;
}

static int print_slots(uint32_t minor, const uint8_t *bytecode, size_t units) {
    static const char *const kinds[] = {"none", "callable", "method", "iterator"};
    struct callee_slot *slots = calloc(units + 1, sizeof slots[0]);
    int failed = slots == NULL || callee_slots_find(minor, bytecode, units, slots) != STATUS_OK;
    for (size_t i = 0; !failed && i < units; i++)
        if (slots[i].kind != CALLEE_SLOT_NONE)
            printf("%zu:%s:%u:%u ", i * 2, kinds[slots[i].kind], slots[i].index, slots[i].lower);
    printf("\n");
    free(slots);
    return failed;
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t capacity = 0;
    int failed = argc < 2;
    while (!failed && getline(&line, &capacity, stdin) > 0) {
        uint8_t *bytecode = malloc(strlen(line));
        failed = bytecode == NULL ||
                 print_slots((uint32_t)strtoul(argv[1], NULL, 10), bytecode, from_hexadecimal(line, bytecode) / 2);
        free(bytecode);
    }
    free(line);
    return failed;
}
