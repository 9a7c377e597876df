/* SPDX-License-Identifier: MIT
 *
 * What is done with each translated block.
 */
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

/* The only processor: what happens with every block happens inline. */
static void watch_inline(struct tb *tb, struct block *block, u32 n)
{
    struct insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
    if (block->starts && block->flags & IS_ENTRY)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, step, R_REGS, block);
    else
        qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, step, R_REGS, NOT_EQUAL, FIELD(running),
                                                  block->func, block);
    if (block->n)
        qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, ADD, FIELD(instructions), n);
    else
        /* QEMU leaves such a block at the access and goes on in another one. */
        for (u32 i = 0; i < n; i++)
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(qemu_plugin_tb_get_insn(tb, i), ADD,
                                                                FIELD(instructions), 1);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, STORE, FIELD(block), (u64)block);
    if (block->mark)
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(last, STORE, FIELD(running),
                                                            block->mark);
    if (block->halts)
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(last, STORE, FIELD(halted), 1);
}

/* One of several processors that take turns. QEMU 10.0 takes the index of the processor that
 * translates a block for that of each one that executes it (gen_cpu_index of
 * accel/tcg/plugin-gen.c), so nothing can happen inline, and the index is found here. */
static u32 this_cpu(void)
{
    static void *last_cpu;
    static u32 last_index;
    void *cpu = running_cpu();
    if (cpu == last_cpu)
        return last_index;
    u32 index = 0;
    while (index < n_cpus - 1 && cpus[index].qemu && cpus[index].qemu != cpu)
        index++;
    cpus[index].qemu = last_cpu = cpu;
    return last_index = index;
}

static void each_block(u32 unused, void *data)
{
    const struct block *block = data;
    u32 index = this_cpu();
    struct counts *counts = cpus[index].counts;
    if (counts->running != block->func || (block->starts && block->flags & IS_ENTRY))
        step(index, data);
    counts->instructions += block->n;
    counts->block = (u64)block;
    if (block->n && block->mark)
        counts->running = block->mark;
    if (block->halts)
        counts->halted = 1;
}

static void each_device_insn(u32 unused, void *data)
{
    cpus[this_cpu()].counts->instructions++;
}

static void last_device_insn(u32 unused, void *data)
{
    const struct block *block = data;
    cpus[this_cpu()].counts->running = block->mark;
}

static void watch_calling(struct tb *tb, struct block *block, u32 n)
{
    qemu_plugin_register_vcpu_tb_exec_cb(tb, each_block, R_REGS, block);
    for (u32 i = 0; i < n && !block->n; i++) {
        struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
        qemu_plugin_register_vcpu_insn_exec_cb(insn, each_device_insn, NO_REGS, block);
        if (i == n - 1 && block->mark)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, last_device_insn, NO_REGS, block);
    }
}

static void translated(u64 id, struct tb *tb)
{
    u32 n = (u32)qemu_plugin_tb_n_insns(tb);
    struct block *block = calloc(1, sizeof *block + n);
    block->address = qemu_plugin_tb_vaddr(tb);
    block->func = USER;
    u64 in_text = block->address - PHYSICAL_TEXT;
    _Bool physical = !has_switched && in_text < texts[0].to - TEXT;
    if (physical)
        block->address = TEXT + in_text;
    _Bool user = !(block->address >> 47);
    if (!user) {
        const struct symbol *at = symbol_at(block->address);
        block->func = at->id;
        block->flags = physical ? 0 : at->flags;
        block->starts = block->address == at->start || at->flags & IS_STUBS;
    }
    u64 end = block->address;
    for (u32 i = 0; i < n; i++)
        end += block->sizes[i] = (u8)qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    struct insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
    u64 mark = mark_of(last, end);
    if (!user || MARKED(mark) == MARK_CLOCK)
        block->mark = mark;
    block->halts = !user && halts(last);
    if (!(block->flags & IS_DEVICE))
        block->n = (u16)n;
    if (several)
        watch_calling(tb, block, n);
    else
        watch_inline(tb, block, n);
}
