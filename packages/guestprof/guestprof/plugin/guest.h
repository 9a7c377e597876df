/* SPDX-License-Identifier: MIT
 *
 * Read the guest's registers and memory.
 */
static struct bytes *buffer;
static struct {
    const char *name;
    void *handle;
} registers[] = {{"rax", NULL}, {"rdx", NULL}, {"rsi", NULL}, {"rdi", NULL}, {"rsp", NULL}};
enum { RAX, RDX, RSI, RDI, RSP, N_REGISTERS };

static _Bool find_registers(void)
{
    struct array *found = qemu_plugin_get_registers();
    struct register_description *one = (void *)found->data;
    u32 known = 0;
    for (u32 n = 0; n < found->len; n++)
        for (u32 r = 0; r < N_REGISTERS; r++)
            if (!strcmp(one[n].name, registers[r].name)) {
                registers[r].handle = one[n].handle;
                known++;
            }
    return known == N_REGISTERS;
}

static u64 register_of(int which)
{
    u64 value = 0;
    g_byte_array_set_size(buffer, 0);
    if (qemu_plugin_read_register(registers[which].handle, buffer) >= 8)
        memcpy(&value, buffer->data, 8);
    return value;
}

static _Bool read_memory(u64 address, void *into, size_t n)
{
    if (!qemu_plugin_read_memory_vaddr(address, buffer, n))
        return 0;
    memcpy(into, buffer->data, n);
    return 1;
}

static u64 word_at(u64 address)
{
    u64 value = 0;
    read_memory(address, &value, 8);
    return value;
}

/* A string may end near an unmapped page: it is read in small steps. */
static void read_string(u64 address, char *into, size_t n)
{
    size_t at = 0;
    while (at + 1 < n) {
        size_t step = 16 - (address + at) % 16;
        if (step > n - 1 - at)
            step = n - 1 - at;
        if (!read_memory(address + at, into + at, step))
            break;
        for (size_t end = at + step; at < end; at++)
            if (!into[at])
                return;
    }
    into[at] = 0;
}
