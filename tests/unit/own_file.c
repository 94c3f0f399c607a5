#include "own_file.h"

#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

static int keep_bias(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    *(uint64_t *)argument = info->dlpi_addr;
    return 1; /* the first is the program itself */
}

void own_file_open(struct own_file *own) {
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    (void)dl_iterate_phdr(keep_bias, &own->bias);
    assert_int_equal(elf_file_open(fd, &own->file), STATUS_OK);
    assert_int_equal(unwind_table_load(own->file, &own->table), STATUS_OK);
    assert_int_equal(elf_data_load(own->file, SIZE_MAX, &own->data), STATUS_OK);
    (void)close(fd);
}

void own_file_close(struct own_file *own) {
    elf_data_free(own->data);
    unwind_table_free(own->table);
    elf_file_free(own->file);
}

uint64_t own_file_address(const struct own_file *own, const void *thing) {
    return (uint64_t)thing - own->bias;
}
