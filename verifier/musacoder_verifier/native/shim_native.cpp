// The shim library: the native form. What load_inline's host code would do is done here from a
// table: check the arguments, make the outputs, evaluate sizes, launch by the driver.
#include "musacoder/abi_cuda.h"
#include "musacoder/abi_native.h"

#include "errors.h"

#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace {

using Integers = std::vector<int64_t>;

constexpr int kCuda = 1; // c10::DeviceType::CUDA
constexpr int kStaticShared = 48 << 10; // a kernel must ask for more than this of dynamic memory
constexpr int kMaxDynamicShared = 8; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// ---- the driver, found at run time: this library is loaded where there is none --------------------

struct Driver {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*retain)(void**, int);
  int (*get_current)(void**);
  int (*push)(void*);
  int (*pop)(void**);
  int (*load)(void**, const void*);
  int (*find)(void**, void*, const char*);
  int (*set_attribute)(void*, int, int);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*error_text)(int, const char**);
};

template <class F>
void take(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) {
    throw std::runtime_error(std::string("the CUDA driver lacks ") + name + "; install a newer one");
  }
}

const Driver& driver() {
  static const Driver found = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw std::runtime_error("the CUDA driver (libcuda.so.1) is not installed");
    }
    Driver made{};
    take(library, "cuInit", made.init);
    take(library, "cuDeviceGet", made.device_get);
    take(library, "cuDevicePrimaryCtxRetain", made.retain);
    take(library, "cuCtxGetCurrent", made.get_current);
    take(library, "cuCtxPushCurrent_v2", made.push);
    take(library, "cuCtxPopCurrent_v2", made.pop);
    take(library, "cuModuleLoadData", made.load);
    take(library, "cuModuleGetFunction", made.find);
    take(library, "cuFuncSetAttribute", made.set_attribute);
    take(library, "cuLaunchKernel", made.launch);
    take(library, "cuGetErrorString", made.error_text);
    return made;
  }();
  return found;
}

void check(int status, const std::string& what) {
  if (status != 0) {
    const char* text = nullptr;
    if (driver().error_text(status, &text) != 0 || text == nullptr) {
      text = "unknown error";
    }
    throw std::runtime_error("CUDA error: " + std::string(text) + " (" + what + ")");
  }
}

void must(int status) {
  if (status != 0) {
    const char* message = nullptr;
    size_t size = 0;
    mc_last_error(&message, &size);
    throw std::runtime_error(std::string(message, size));
  }
}

// ---- the table -------------------------------------------------------------------------------------

struct Step {
  char code; // '=' number, 'v' variable, 'n' count of elements, else an operator
  int64_t value = 0;
};

struct Tensor {
  std::string name;
  int dtype = 0;
  int like = -1; // the argument whose shape it has; -1: `sizes`
  std::vector<std::vector<Step>> sizes;
};

struct Argument {
  char kind = 't'; // tensor, integer, bool, double
  int variable = -1;
  Tensor tensor;
};

struct Parameter {
  char kind; // 't' address, 'd' floating point, 'i' integer
  int index = 0;
  int bytes = 8;
  std::vector<Step> value;
};

struct Launch {
  std::string kernel;
  std::vector<Step> sizes[7]; // grid x y z, block x y z, shared bytes
  std::vector<Parameter> parameters;
};

// The kernels of one image, loaded into each device on its first call. Calls come one at a time:
// the interpreter's lock is held.
struct Image {
  std::string bytes;
  struct OnDevice {
    void* context = nullptr;
    void* module = nullptr;
    std::map<std::string, void*> kernels;
    std::map<void*, int64_t> shared; // the most dynamic shared memory that was asked for
  };
  std::map<int, OnDevice> devices;
};

struct Function {
  std::string name;
  std::string signature;
  size_t variables = 0;
  size_t outputs = 0;
  std::vector<Argument> arguments;
  std::vector<Tensor> made;
  std::vector<Launch> launches;
  Image* image = nullptr;
};

class Reader {
 public:
  explicit Reader(const char* text) : stream_(text) {}

  std::string word() {
    std::string text;
    if (!(stream_ >> text)) {
      throw std::runtime_error("the launch table ends too early");
    }
    return text;
  }
  int64_t number() { return std::stoll(word()); }
  size_t count() { return static_cast<size_t>(number()); }

  std::vector<Step> expression() {
    std::vector<Step> steps(count());
    for (Step& step : steps) {
      const std::string text = word();
      const bool digit = text[0] >= '0' && text[0] <= '9';
      step.code = digit ? '=' : text[0];
      step.value = digit ? std::stoll(text) : text.size() > 1 ? std::stoll(text.substr(1)) : 0;
    }
    return steps;
  }

  Tensor tensor() {
    Tensor made;
    made.name = word();
    made.dtype = static_cast<int>(number());
    made.like = static_cast<int>(number());
    if (made.like < 0) {
      made.sizes.resize(count());
      for (auto& size : made.sizes) {
        size = expression();
      }
    }
    return made;
  }

  Function* function() {
    auto* made = new Function(); // never freed, like all that an extension registers
    made->name = word();
    made->variables = count();
    made->arguments.resize(count());
    std::string codes;
    for (Argument& argument : made->arguments) {
      argument.kind = word()[0];
      if (argument.kind == 't') {
        argument.tensor = tensor();
      } else {
        argument.tensor.name = word();
        argument.variable = static_cast<int>(number());
      }
      codes += argument.kind == 't' ? 'T' : argument.kind == 'i' ? 'l' : argument.kind;
    }
    made->made.resize(count());
    for (Tensor& item : made->made) {
      item = tensor();
    }
    made->outputs = count();
    made->signature = made->outputs == 0 ? "v"
        : made->outputs == 1             ? "T"
                                         : "(" + std::string(made->outputs, 'T') + ")";
    made->signature += codes;
    made->launches.resize(count());
    for (Launch& launch : made->launches) {
      launch.kernel = word();
      for (auto& size : launch.sizes) {
        size = expression();
      }
      launch.parameters.resize(count());
      for (Parameter& parameter : launch.parameters) {
        parameter.kind = word()[0];
        parameter.bytes = static_cast<int>(number());
        if (parameter.kind == 'i') {
          parameter.value = expression();
        } else {
          parameter.index = static_cast<int>(number());
        }
      }
    }
    return made;
  }

 private:
  std::istringstream stream_;
};

// ---- one call --------------------------------------------------------------------------------------

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// A tensor that the call made, until it is handed over.
struct Owned {
  std::vector<mc_tensor*> tensors;
  ~Owned() {
    for (mc_tensor* tensor : tensors) {
      if (tensor != nullptr) {
        mc_tensor_release(tensor);
      }
    }
  }
};

class Call {
 public:
  Call(const Function& function, const mc_value* arguments)
      : function_(function), arguments_(arguments), values_(function.variables),
        known_(function.variables) {}

  void run(mc_value* result) {
    for (size_t i = 0; i < function_.arguments.size(); ++i) {
      take(i);
    }
    for (const Tensor& tensor : function_.made) {
      make(tensor);
    }
    if (!function_.launches.empty()) {
      launch_all();
    }
    give(result);
  }

 private:
  [[noreturn]] void refuse(const std::string& text) const {
    throw std::invalid_argument(function_.name + "(): " + text);
  }

  void bind(int variable, int64_t value, const std::string& whose) {
    const auto slot = static_cast<size_t>(variable);
    if (known_[slot] && values_[slot] != value) {
      refuse(whose + " has the size " + std::to_string(value) + " where an earlier argument has " +
             std::to_string(values_[slot]));
    }
    known_[slot] = true;
    values_[slot] = value;
  }

  void take(size_t index) {
    const Argument& argument = function_.arguments[index];
    const mc_value& value = arguments_[index];
    const std::string& name = argument.tensor.name;
    if (argument.kind == 'd') {
      return;
    }
    if (argument.kind != 't') {
      bind(argument.variable, value.integer, name);
      return;
    }
    int type = 0;
    int device = 0;
    int contiguous = 0;
    if (value.tensor == nullptr) {
      refuse(name + " is an undefined tensor");
    }
    must(mc_tensor_device(value.tensor, &type, &device));
    if (type != kCuda) {
      refuse(name + " is on " + mc_device_type_name(type) + ", not on a CUDA device");
    }
    if (device_ >= 0 && device != device_) {
      refuse(name + " is on another device than the arguments before it");
    }
    device_ = device;
    const Tensor& expected = argument.tensor;
    if (mc_tensor_dtype(value.tensor) != expected.dtype) {
      refuse(name + " is of " + mc_dtype_name(mc_tensor_dtype(value.tensor)) + ", not of " +
             mc_dtype_name(expected.dtype));
    }
    must(mc_tensor_is_contiguous(value.tensor, 0, &contiguous));
    if (contiguous == 0) {
      refuse(name + " must be contiguous");
    }
    const int64_t* sizes = nullptr;
    int64_t dim = 0;
    must(mc_tensor_sizes(value.tensor, &sizes, &dim));
    if (expected.like >= 0) {
      const Integers first = shape(expected.like);
      if (first != Integers(sizes, sizes + dim)) {
        refuse(name + " has another shape than " +
               function_.arguments[static_cast<size_t>(expected.like)].tensor.name);
      }
      return;
    }
    if (static_cast<size_t>(dim) != expected.sizes.size()) {
      refuse(name + " has " + std::to_string(dim) + " dimensions, not " +
             std::to_string(expected.sizes.size()));
    }
    for (size_t d = 0; d < expected.sizes.size(); ++d) {
      const Step& step = expected.sizes[d][0];
      if (step.code == 'v') {
        bind(static_cast<int>(step.value), sizes[d], name);
      } else if (step.value != sizes[d]) {
        refuse("dimension " + std::to_string(d) + " of " + name + " has the size " +
               std::to_string(sizes[d]) + ", not " + std::to_string(step.value));
      }
    }
  }

  Integers shape(int argument) const {
    const int64_t* sizes = nullptr;
    int64_t dim = 0;
    must(mc_tensor_sizes(arguments_[argument].tensor, &sizes, &dim));
    return Integers(sizes, sizes + dim);
  }

  void make(const Tensor& tensor) {
    Integers sizes;
    if (tensor.like >= 0) {
      sizes = shape(tensor.like);
    } else {
      for (const auto& size : tensor.sizes) {
        sizes.push_back(evaluate(size));
        if (sizes.back() < 0) {
          refuse("the size of " + tensor.name + " would be " + std::to_string(sizes.back()));
        }
      }
    }
    mc_tensor* made = nullptr;
    const int status = mc_empty(sizes.data(), static_cast<int64_t>(sizes.size()), tensor.dtype, -1,
                                kCuda, device_, -1, -1, &made);
    if (status != 0) {
      throw status; // as PyTorch says it: out of memory has a kind of its own
    }
    owned_.tensors.push_back(made);
  }

  int64_t evaluate(const std::vector<Step>& steps) const {
    int64_t small[16];
    Integers large;
    int64_t* stack = small;
    if (steps.size() > 16) {
      large.resize(steps.size());
      stack = large.data();
    }
    size_t top = 0;
    for (const Step& step : steps) {
      switch (step.code) {
        case '=':
          stack[top++] = step.value;
          continue;
        case 'v':
          stack[top++] = values_[static_cast<size_t>(step.value)];
          continue;
        case 'n':
          must(mc_tensor_numel(arguments_[step.value].tensor, &stack[top++]));
          continue;
        case '~':
          stack[top - 1] = checked(0, stack[top - 1], '-');
          continue;
        default:
          --top;
          stack[top - 1] = checked(stack[top - 1], stack[top], step.code);
      }
    }
    return stack[0];
  }

  int64_t checked(int64_t a, int64_t b, char code) const {
    int64_t result = 0;
    bool overflow = false;
    switch (code) {
      case '+':
        overflow = __builtin_add_overflow(a, b, &result);
        break;
      case '-':
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
      case '*':
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
      case 'm':
        return a < b ? a : b;
      case 'M':
        return a > b ? a : b;
      default:
        if (b <= 0) {
          refuse("a size is divided by " + std::to_string(b));
        }
        result = floor_divide(a, b);
        result = code == '%' ? a - result * b : code == 'c' && a % b != 0 ? result + 1 : result;
    }
    if (overflow) {
      refuse("a size does not fit 64 bits");
    }
    return result;
  }

  void launch_all() {
    const Driver& cuda = driver();
    Image::OnDevice& here = function_.image->devices[device_];
    if (here.context == nullptr) {
      int device = 0;
      check(cuda.init(0), "starting the driver");
      check(cuda.device_get(&device, device_), "finding the device");
      check(cuda.retain(&here.context, device), "entering the device");
    }
    void* current = nullptr;
    check(cuda.get_current(&current), "entering the device");
    if (current == here.context) {
      launch_here(here);
      return;
    }
    check(cuda.push(here.context), "entering the device");
    struct Leave {
      const Driver& cuda;
      ~Leave() {
        void* left = nullptr;
        cuda.pop(&left);
      }
    } leave{cuda};
    launch_here(here);
  }

  void launch_here(Image::OnDevice& here) {
    const Driver& cuda = driver();
    if (here.module == nullptr) {
      check(cuda.load(&here.module, function_.image->bytes.data()), "loading the kernels");
    }
    int device = device_;
    void* stream = nullptr;
    must(mc_cuda_current_stream(&device, &stream));
    for (const Launch& launch : function_.launches) {
      void*& kernel = here.kernels[launch.kernel];
      if (kernel == nullptr) {
        check(cuda.find(&kernel, here.module, launch.kernel.c_str()), "finding " + launch.kernel);
      }
      start(launch, kernel, here, stream);
    }
  }

  void start(const Launch& launch, void* kernel, Image::OnDevice& here, void* stream) {
    int64_t sizes[7];
    unsigned plain[7];
    bool nothing = false;
    for (int i = 0; i < 7; ++i) {
      sizes[i] = evaluate(launch.sizes[i]);
      plain[i] = static_cast<unsigned>(sizes[i]);
      if (sizes[i] < 0 || sizes[i] > 0x7FFFFFFF) {
        refuse("a size of the launch of " + launch.kernel + " would be " + std::to_string(sizes[i]));
      }
      nothing = nothing || (i < 3 && sizes[i] == 0);
    }
    if (nothing) {
      return;
    }
    int64_t& most = here.shared[kernel];
    if (sizes[6] > kStaticShared && sizes[6] > most) {
      check(driver().set_attribute(kernel, kMaxDynamicShared, static_cast<int>(sizes[6])),
            launch.kernel + " asks for " + std::to_string(sizes[6]) + " bytes of shared memory");
      most = sizes[6];
    }
    std::vector<int64_t> words(launch.parameters.size()); // little-endian: the low bytes come first
    std::vector<void*> addresses(launch.parameters.size());
    for (size_t i = 0; i < words.size(); ++i) {
      fill(launch, launch.parameters[i], words[i]);
      addresses[i] = &words[i];
    }
    const int status =
        driver().launch(kernel, plain[0], plain[1], plain[2], plain[3], plain[4], plain[5], plain[6],
                        stream, addresses.data(), nullptr);
    if (status != 0) {
      std::string what = "launching " + launch.kernel;
      const char* const names[] = {", grid ", " x ", " x ", ", block ", " x ", " x ", ", shared "};
      for (int i = 0; i < 7; ++i) {
        what += names[i] + std::to_string(sizes[i]);
      }
      check(status, what);
    }
  }

  void fill(const Launch& launch, const Parameter& parameter, int64_t& word) const {
    if (parameter.kind == 't') {
      void* address = nullptr;
      must(mc_tensor_data(tensor(parameter.index), 1, &address));
      std::memcpy(&word, &address, sizeof address);
    } else if (parameter.kind == 'd') {
      const double value = arguments_[parameter.index].real;
      const auto narrow = static_cast<float>(value);
      if (parameter.bytes == 4) {
        std::memcpy(&word, &narrow, sizeof narrow);
      } else {
        std::memcpy(&word, &value, sizeof value);
      }
    } else {
      word = evaluate(parameter.value);
      const int bits = 8 * parameter.bytes;
      // Signed or unsigned is the kernel's affair: both ranges are accepted.
      if (bits < 64 && (word < -(int64_t{1} << (bits - 1)) || word >= int64_t{1} << bits)) {
        refuse(std::to_string(word) + " does not fit the " + std::to_string(parameter.bytes) +
               " bytes of a parameter of " + launch.kernel);
      }
    }
  }

  mc_tensor* tensor(int index) const {
    const auto position = static_cast<size_t>(index);
    const size_t count = function_.arguments.size();
    return position < count ? arguments_[position].tensor : owned_.tensors[position - count];
  }

  void give(mc_value* result) {
    const size_t first = owned_.tensors.size() - function_.outputs;
    if (function_.outputs == 1) {
      result->tag = MC_TENSOR;
      std::swap(result->tensor, owned_.tensors[first]);
    } else if (function_.outputs > 1) {
      auto* items =
          static_cast<mc_value*>(mc_allocate(function_.outputs * sizeof(mc_value)));
      for (size_t i = 0; i < function_.outputs; ++i) {
        items[i] = mc_value{};
        items[i].tag = MC_TENSOR;
        std::swap(items[i].tensor, owned_.tensors[first + i]);
      }
      result->tag = MC_TUPLE;
      result->size = static_cast<int64_t>(function_.outputs);
      result->data = items;
    }
  }

  const Function& function_;
  const mc_value* arguments_;
  Integers values_;
  std::vector<bool> known_;
  int device_ = -1;
  Owned owned_;
};

int invoke(const mc_function* self, const mc_value* arguments, mc_value* result) {
  try {
    Call(*static_cast<const Function*>(self->callable), arguments).run(result);
    return 0;
  } catch (int kind) {
    return kind; // the error stands in its place already
  } catch (const std::invalid_argument& error) {
    return musacoder::fail(MC_VALUE_ERROR, error.what());
  } catch (...) {
    return musacoder::fail_with_current_exception();
  }
}

void register_function(mc_registry* registry, const Function& function) {
  std::vector<mc_argument> arguments(function.arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    arguments[i] = mc_argument{};
    arguments[i].name = function.arguments[i].tensor.name.c_str();
  }
  mc_function made{};
  made.name = function.name.c_str();
  made.signature = function.signature.c_str();
  made.invoke = invoke;
  made.callable = const_cast<Function*>(&function);
  made.arguments = arguments.data();
  made.argument_count = static_cast<int32_t>(arguments.size());
  made.keyword_only = -1;
  mc_register_function(registry, &made);
}

thread_local std::vector<Function*> opened; // between mc_open_native and the entry that it names

} // namespace

extern "C" const mc_registry* mc_open_native(const char* image, const char* launches) {
  opened.clear();
  const int status = musacoder::guarded([&] {
    std::ifstream file(image, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    auto* kernels = new Image();
    kernels->bytes = bytes.str();
    if (!file || kernels->bytes.empty()) {
      throw std::runtime_error(std::string("cannot read the kernels in ") + image);
    }
    Reader reader(launches);
    for (size_t left = reader.count(); left > 0; --left) {
      opened.push_back(reader.function());
      opened.back()->image = kernels;
    }
  });
  if (status != 0) {
    return nullptr;
  }
  return mc_open_registry([](mc_registry* registry) {
    for (const Function* function : opened) {
      register_function(registry, *function);
    }
    return 0;
  });
}
