-- One editor session in a real, headless Neovim 0.11: open a file, wait for the lens that offers a
-- kernel, run it, follow it to a verified result, hover, and leave. Prints one JSON object; exits 0
-- when every step passed.
--
-- usage: nvim --headless -u NONE -l neovim_loop.lua FILE SECONDS SERVER [ARG...]

local report = { ok = false, messages = {}, titles = {} }

-- Neovim prints messages to the same stream as this script: collect them, so that stdout is JSON alone.
local function record(message)
  table.insert(report.messages, tostring(message))
end
print = record
vim.notify = record
vim.notify_once = record

local file, seconds = arg[1], tonumber(arg[2])
local command = vim.list_slice(arg, 3)
local exited -- { code, signal } once the server process has ended

--- Repeats probe() until it returns something truthy. Neovim handles the server's messages meanwhile.
local function wait_for(what, probe)
  local found
  vim.wait(seconds * 1000, function()
    found = probe()
    return found or exited
  end, 20)
  if not found then
    local why = exited and ('the server ended with code %d'):format(exited.code) or ('waited %g s'):format(seconds)
    error(('no %s (%s); lenses seen: %s'):format(what, why, vim.inspect(report.titles)), 0)
  end
  return found
end

local function start(buffer)
  local id = vim.lsp.start({
    name = 'musacoder',
    cmd = command,
    root_dir = vim.fs.dirname(file),
    -- Comparing with torch.compile takes longer than all the rest.
    settings = { musacoder = { compileBaseline = false } },
    on_exit = function(code, signal)
      exited = { code = code, signal = signal }
    end,
    handlers = {
      ['window/showMessage'] = function(_, params)
        record(params.message)
      end,
    },
  }, { bufnr = buffer })
  return assert(vim.lsp.get_client_by_id(id))
end

--- 0.11 has no lens refresh from the server, so ask again and again, as a plugin does on its events.
local function wait_for_lens(buffer, patterns)
  local next_refresh = 0
  return wait_for('lens ' .. table.concat(patterns, ' or '), function()
    if vim.uv.now() >= next_refresh then
      vim.lsp.codelens.refresh({ bufnr = buffer })
      next_refresh = vim.uv.now() + 200
    end
    for _, lens in ipairs(vim.lsp.codelens.get(buffer)) do
      local title = lens.command and lens.command.title or ''
      if report.titles[#report.titles] ~= title then
        table.insert(report.titles, title)
      end
      for _, pattern in ipairs(patterns) do
        if title:find(pattern) then
          return lens
        end
      end
    end
  end)
end

local client
local passed, problem = pcall(function()
  vim.cmd.edit(vim.fn.fnameescape(file))
  local buffer = vim.api.nvim_get_current_buf()
  vim.bo[buffer].filetype = 'python' -- -u NONE switches detection off
  local before = vim.api.nvim_buf_get_lines(buffer, 0, -1, false)
  client = start(buffer)
  wait_for('initialize result', function()
    return client.initialized
  end)
  report.encoding = client.offset_encoding

  local lens = wait_for_lens(buffer, { 'Generate kernel' })
  report.command = lens.command
  local answer = assert(client:request_sync('workspace/executeCommand', {
    command = lens.command.command,
    arguments = lens.command.arguments,
  }, seconds * 1000, buffer))
  report.answer = answer.result
  assert(not answer.err, vim.inspect(answer.err))

  local done = wait_for_lens(buffer, { 'vs eager', 'correct, slower', 'failed', 'not covered' })
  report.result = done.command.title
  local params = { textDocument = { uri = vim.uri_from_bufnr(buffer) }, position = done.range.start }
  local hover = assert(client:request_sync('textDocument/hover', params, seconds * 1000, buffer))
  report.hover = hover.result and hover.result.contents.value
  local after = vim.api.nvim_buf_get_lines(buffer, 0, -1, false)
  report.untouched = vim.deep_equal(before, after)
end)

if client and not exited then
  client:stop()
  vim.wait(5000, function()
    return exited ~= nil
  end, 20)
  local leftovers = vim.api.nvim_get_proc_children(vim.fn.getpid())
  for _, pid in ipairs(leftovers) do
    vim.uv.kill(pid, 'sigkill')
  end
  report.exit = exited
  if passed and (not exited or exited.code ~= 0 or #leftovers > 0) then
    passed, problem = false, 'the server did not end cleanly after shutdown and exit'
  end
end
report.error = problem
report.ok = passed
io.stdout:write(vim.json.encode(report), '\n')
os.exit(passed and 0 or 1)
