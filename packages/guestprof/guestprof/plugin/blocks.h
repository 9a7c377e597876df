/* SPDX-License-Identifier: MIT
 *
 * What is done with each translated block.
 */
static struct block *new_block(u32 n)
{
    enum { AT_ONCE = 1 << 20 };
    static char *at;
    static size_t left;
    size_t size = (sizeof(struct block) + n + 7) / 8 * 8;
    if (size > left) {
        at = low_memory(AT_ONCE);
        left = at ? AT_ONCE : 0;
        if (!at)
            return calloc(1, size);
    }
    at += size;
    left -= size;
    return (void *)(at - size);
}

/* The processors of a machine take turns in one thread, and share translated blocks. QEMU 10.0 takes
 * the processor that translates a block for each one that executes it (gen_cpu_index of
 * accel/tcg/plugin-gen.c). With a bit of its own in the key of its blocks, which QEMU does not use,
 * each processor translates its own.
 *
 * It also multiplies the processor's number in place, which is a constant, so that what uses this
 * constant in the same block goes wrong (gen_plugin_u64_ptr). A multiplication by one, the size of
 * an element of the scoreboard, is left out: the field's offset leads to the processor's counts. */
enum { FIRST_UNUSED_BIT = 19 };

static u32 translating_cpu(void)
{
    static void *known[MOST_CPUS];
    void *running = running_cpu();
    u32 index = 0;
    for (; n_cpus > 1 && !known[n_cpus - 1] && index < n_cpus; index++) {
        known[index] = qemu_get_cpu((int)index);
        tcg_cflags_set(known[index], index << FIRST_UNUSED_BIT);
    }
    for (index = 0; index < n_cpus - 1 && known[index] != running;)
        index++;
    return index;
}

static struct field field_at(u32 index, const u64 *value)
{
    u8 *from = qemu_plugin_scoreboard_find(score, 0);
    return (struct field){score, (size_t)value - (size_t)from - index};
}

/* Find the mark that the block's last instruction leaves; 0: none. */
static u64 mark_of(struct insn *insn, u64 next_insn)
{
    u8 code[16];
    size_t n = qemu_plugin_insn_data(insn, code, sizeof code), at = 0;
    while (at < n && (code[at] == 0x66 || code[at] == 0xf2 || code[at] == 0xf3 ||
                      code[at] == 0x2e || code[at] == 0x3e || (code[at] & 0xf0) == 0x40))
        at++;
    if (at + 1 > n)
        return 0;
    u8 op = code[at], next = at + 1 < n ? code[at + 1] : 0;
    if (op == 0xe8 || (op == 0xff && ((next >> 3) & 7) == 2))
        return MARK(MARK_CALL, next_insn);
    if (op == 0xc3 || op == 0xc2)
        return MARK(MARK_RETURN, 0);
    if (op == 0xcf)
        return MARK(MARK_IRET, 0);
    if (op == 0x0f && (next == 0x31 || (next == 0x01 && at + 2 < n && code[at + 2] == 0xf9)))
        return MARK(MARK_CLOCK, 0);
    return 0;
}

static _Bool halts(struct insn *insn)
{
    u8 code[16];
    return qemu_plugin_insn_data(insn, code, sizeof code) && code[0] == 0xf4;
}

/* Count the block's instructions there, and note which block it is. */
static void count_in(u64 *sum, struct tb *tb, struct block *block, u32 n, u32 index)
{
    struct field instructions = field_at(index, sum);
    if (block->n)
        qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, ADD, instructions, n);
    /* Else QEMU leaves the block at the access and goes on in another one. */
    for (u32 i = 0; i < n && !block->n; i++)
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(qemu_plugin_tb_get_insn(tb, i), ADD,
                                                            instructions, 1);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        tb, STORE, field_at(index, &counts[index].block), (u64)block);
    if (block->halts)
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
            qemu_plugin_tb_get_insn(tb, n - 1), STORE, field_at(index, &counts[index].halted), 1);
}

static void watch(struct tb *tb, struct block *block, u32 n, u32 index)
{
    struct field running = field_at(index, &counts[index].running);
    if (block->starts && block->flags & IS_ENTRY)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, step, R_REGS, block);
    else
        qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, step, R_REGS, NOT_EQUAL, running,
                                                  block->func, block);
    count_in(&counts[index].instructions, tb, block, n, index);
    if (block->mark)
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(qemu_plugin_tb_get_insn(tb, n - 1),
                                                            STORE, running, block->mark);
}

/* Addresses that follow an instruction that reads the clock: it ends its block. */
static u64 clocks[1 << 12];

static u64 *clock_at(u64 address)
{
    u32 n = (u32)(address * 0x9e3779b97f4a7c15ull >> 52), tried = 0;
    while (clocks[n] && clocks[n] != address && ++tried < 64)
        n = (n + 1) % (sizeof clocks / sizeof *clocks);
    return &clocks[n];
}

static void watch_flat(struct tb *tb, struct block *block, u32 n, u32 index, u64 end)
{
    struct field clock = field_at(index, &counts[index].clock);
    block->slot = slot_of(block->func);
    if (*clock_at(block->address) == block->address)
        qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, after_clock, R_REGS, NOT_EQUAL, clock, 0,
                                                  block);
    if (block->starts && block->flags & IS_ENTRY)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, flat_entry, R_REGS, block);
    else if (block->starts && block->flags & IS_WATCHED)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, flat_watched, R_REGS, block);
    count_in(&slot_instructions[index][block->slot], tb, block, n, index);
    if (block->starts)
        qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
            tb, ADD, field_at(index, &slot_calls[index][block->slot]), 1);
    if (MARKED(block->mark) == MARK_CLOCK) {
        *clock_at(end) = end;
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(qemu_plugin_tb_get_insn(tb, n - 1),
                                                            STORE, clock, end);
    }
}

static void translated(u64 id, struct tb *tb)
{
    u32 index = translating_cpu();
    u32 n = (u32)qemu_plugin_tb_n_insns(tb);
    struct block *block = new_block(n);
    block->address = qemu_plugin_tb_vaddr(tb);
    u64 in_text = block->address - PHYSICAL_TEXT;
    _Bool physical = !has_switched && in_text < texts[0].to - TEXT;
    if (physical)
        block->address = TEXT + in_text;
    _Bool in_user = !(block->address >> 47);
    const struct symbol at =
        in_user ? program_symbol_at(tb, block->address) : *symbol_at(block->address);
    block->func = at.id;
    block->flags = physical ? 0 : at.flags;
    block->starts = block->address == at.start || at.flags & IS_STUBS;
    u64 end = block->address;
    for (u32 i = 0; i < n; i++)
        end += block->sizes[i] = (u8)qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    struct insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
    u64 mark = mark_of(last, end);
    if (!in_user || MARKED(mark) == MARK_CLOCK)
        block->mark = mark;
    block->halts = !in_user && halts(last);
    if (!(block->flags & IS_DEVICE))
        block->n = (u16)n;
    if (flat)
        watch_flat(tb, block, n, index, end);
    else
        watch(tb, block, n, index);
}
