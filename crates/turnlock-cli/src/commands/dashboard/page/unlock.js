// The dialog that releases a lock by force.

import { html, setText } from './dom.js';
import { identity, message as plain, visible } from './text.js';

/** The word that confirms an unlock, as in `turnlock watch`. */
const CONFIRMATION = 'yes';

/** Asks for confirmation, and releases the hold that was shown: its owner can have another one meanwhile. */
export function confirmUnlock(connection, lock, holder) {
  const dialog = document.getElementById('dialog');
  const { name, kind, token } = lock;
  const { owner, mode, seen_ms } = holder;
  const message = html('p', { class: 'outcome', role: 'alert' });
  const confirm = html('button', { type: 'submit', class: 'danger', disabled: true }, 'Unlock');
  const cancel = html('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel');
  const input = html('input', {
    id: 'confirmation', type: 'text', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', 'aria-describedby': 'dialog-warning',
    oninput: () => { confirm.disabled = input.value.trim() !== CONFIRMATION; },
  });
  const submit = async (event) => {
    event.preventDefault();
    if (confirm.disabled) return;
    confirm.disabled = true;
    let isReleased = false;
    try {
      const response = await connection.post('/api/unlock', { name, kind, owner, mode, token, seen_ms });
      // After the limit of a request, it goes on.
      if (response.status === 408) throw new Error('no reply in time');
      setText(message, plain((await response.text()).trim()));
      message.classList.toggle('failed', !response.ok);
      isReleased = response.ok;
      if (!isReleased) return;
      cancel.textContent = 'Close';
      confirm.hidden = true;
      input.disabled = true;
      cancel.focus();
    } catch {
      setText(message, 'The dashboard does not reply. The lock may be released or not: look at it again.');
      message.classList.add('failed');
    } finally {
      if (!isReleased) {
        confirm.disabled = false;
        confirm.focus();
      }
    }
  };
  dialog.replaceChildren(html('form', { onsubmit: submit },
    html('h2', { id: 'dialog-title' }, 'Release this lock by force?'),
    html('dl', { class: 'facts' },
      html('dt', {}, 'Lock'), html('dd', { class: 'name' }, visible(name)),
      html('dt', {}, 'Kind'), html('dd', {}, kind),
      mode !== 'exclusive' && [html('dt', {}, 'Mode'), html('dd', {}, mode)],
      html('dt', {}, 'Holder'), html('dd', {}, identity(holder)),
      html('dt', {}, 'Owner'), html('dd', { class: 'name' }, visible(owner))),
    html('p', { id: 'dialog-warning', class: 'warning' }, connection.session.warning),
    html('label', { for: 'confirmation' }, `Type ${CONFIRMATION} to confirm`), input,
    message,
    html('div', { class: 'buttons' }, cancel, confirm)));
  const opener = document.activeElement;
  // The button is gone with its holder.
  const focusPage = () => (opener?.isConnected ? opener : document.getElementById('main')).focus();
  dialog.addEventListener('close', focusPage, { once: true });
  dialog.showModal();
  input.focus();
}
