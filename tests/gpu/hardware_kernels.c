/* Kernels that take their time, or break the context that they run in. The driver compiles them, so that they
 * need no nvcc. */
#include "tests/gpu/hardware.h"

#define ENTRY(name)                                                                                          \
	".visible .entry " #name "(.param .u64 place)\n{\n.reg .b64 %place;\nld.param.u64 %place, "          \
	"[place];\n"

/* The turns are counted as well: a kernel that did not end would take the GPU with it. */
static const char image[] = ".version 6.0\n.target sm_60\n.address_size 64\n"
			    ".visible .entry spin(.param .u64 nanoseconds, .param .u64 flags, .param .u64 "
			    "to, .param .u32 value)\n"
			    "{\n"
			    ".reg .pred %p;\n"
			    ".reg .b32 %turn, %word;\n"
			    ".reg .b64 %flags, %begin, %now, %limit, %place;\n"
			    "ld.param.u64 %flags, [flags];\n"
			    "ld.param.u64 %limit, [nanoseconds];\n"
			    "mov.u64 %begin, %globaltimer;\n"
			    "mov.u32 %turn, 0;\n"
			    "mov.u32 %word, 1;\n"
			    "st.volatile.global.u32 [%flags], %word;\n"
			    "again:\n"
			    "add.u32 %turn, %turn, 1;\n"
			    "setp.gt.u32 %p, %turn, 67108864;\n"
			    "@%p bra over;\n"
			    "ld.volatile.global.u32 %word, [%flags+4];\n"
			    "setp.ne.u32 %p, %word, 0;\n"
			    "@%p bra over;\n"
			    "mov.u64 %now, %globaltimer;\n"
			    "sub.u64 %now, %now, %begin;\n"
			    "setp.lt.u64 %p, %now, %limit;\n"
			    "@%p bra again;\n"
			    "over:\n"
			    "ld.param.u64 %place, [to];\n"
			    "setp.eq.u64 %p, %place, 0;\n"
			    "@%p ret;\n"
			    "ld.param.u32 %word, [value];\n"
			    "st.global.u32 [%place], %word;\n"
			    "ret;\n"
			    "}\n"
	/* clang-format off */
	ENTRY(outside) "mov.u64 %place, 8;\nst.global.u32 [%place], 1;\nret;\n}\n"
	ENTRY(misaligned) "st.global.u32 [%place+1], 1;\nret;\n}\n"
	ENTRY(trap) "trap;\n}\n";
/* clang-format on */

const char *const hardware_mistakes[] = { "outside", "misaligned", "trap", NULL };

static void launch(const char *kernel, void **parameters, struct driver_stream *stream)
{
	static struct driver_module *module;
	struct driver_function *function;

	if (!module)
		hardware_expect(hardware_driver.module_load(&module, image));
	hardware_expect(hardware_driver.module_function(&function, module, kernel));
	hardware_expect(hardware_driver.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

void hardware_begin_spin(const struct hardware_spin *spin, struct driver_stream *stream)
{
	struct hardware_spin with = *spin;
	void *parameters[] = { &with.nanoseconds, &with.flags, &with.to, &with.value };

	launch("spin", parameters, stream);
}

int hardware_make_mistake(const char *mistake)
{
	static uint32_t page[1024] __attribute__((aligned(4096)));
	driver_address memory = hardware_map(page, sizeof(page));
	void *parameters[] = { &memory };

	launch(mistake, parameters, NULL);
	return hardware_calls.wait();
}
